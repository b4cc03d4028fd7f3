package model

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/dir"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the operations; 0 takes a random one")

const (
	stores = 2
	// opTime bounds an operation, and so a writer's life; what is older than grace is nobody's.
	opTime = time.Second
	grace  = 2500 * time.Millisecond
	hour   = time.Hour
)

// operations is how many there are for each rate of faults: some 160 a second, with the race detector.
const operations = 2_000

// clocks are by how much each node's clock is ahead.
var clocks = []time.Duration{0, hour, -hour, 0}

// TestModel runs the operations with the backend failing in 5 % and in 30 % of its calls, in half of
// the operations; in the others nothing may fail.
func TestModel(t *testing.T) {
	for _, rate := range []float64{0.05, 0.30} {
		t.Run(fmt.Sprintf("%.0f%%", 100*rate), func(t *testing.T) {
			seed := *seedFlag
			if seed == 0 {
				seed = rand.Uint64()
			}
			m := newModel(t, rate)
			if err := m.run(seed); err != nil {
				t.Fatalf("seed %d: %v\nlast operations:\n%s", seed, err, m.history)
			}
			if err := m.finish(); err != nil {
				t.Fatalf("seed %d: in the end: %v\nlast operations:\n%s", seed, err, m.history)
			}
			t.Logf("seed %d: %s", seed, &m.count)
		})
	}
}

// place is where a snapshot may be.
type place struct {
	store int
	key   storage.Key
}

// state is what is at a place: a snapshot, by its id and its chunks, or none (id 0).
type state struct {
	id      uint64
	content []uint64
}

// cell is the model of a place. Who reads it holds the lock shared while the operation lasts, who
// changes it alone.
type cell struct {
	sync.RWMutex
	state
}

// model is what the stores ought to be.
type model struct {
	t     *testing.T
	rate  float64
	paths []string
	look  []*storage.Store // without faults, with a right clock
	cells map[place]*cell

	ids     atomic.Uint64
	count   counts
	history *history
}

func newModel(t *testing.T, rate float64) *model {
	t.Helper()
	m := &model{t: t, rate: rate, cells: map[place]*cell{}, history: &history{}}
	base, err := os.MkdirTemp("/dev/shm", "diapause-model-")
	if err != nil {
		base = t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	for i := range stores {
		m.paths = append(m.paths, filepath.Join(base, fmt.Sprint("store", i)))
		b, err := dir.Open(m.paths[i])
		if err != nil {
			t.Fatal(err)
		}
		s, err := storage.Open(t.Context(), b, options)
		if err != nil {
			t.Fatal(err)
		}
		m.look = append(m.look, s)
		for _, namespace := range []string{"blue", "green"} {
			for n := range 10 {
				m.cells[place{i, storage.Key{Namespace: namespace, Name: fmt.Sprint("s", n)}}] = &cell{}
			}
		}
	}
	return m
}

// run has all nodes work until enough operations are done, or one of them is wrong.
func (m *model) run(seed uint64) error {
	var left atomic.Int64
	left.Store(operations)
	var group sync.WaitGroup
	errs := make([]error, len(clocks))
	for i, ahead := range clocks {
		group.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			if errs[i] = m.drive(r, ahead, &left); errs[i] != nil {
				left.Store(0)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// drive is the life of one node.
func (m *model) drive(r *rand.Rand, ahead time.Duration, left *atomic.Int64) error {
	p, err := startProcess(nodeConfig{Stores: m.paths, Skew: ahead})
	if err != nil {
		return err
	}
	rival, err := startProcess(nodeConfig{Stores: m.paths})
	if err != nil {
		return err
	}
	for left.Add(-1) >= 0 {
		if err := m.step(r, p, rival); err != nil {
			return fmt.Errorf("node with its clock %v ahead: %w", ahead, err)
		}
	}
	return errors.Join(p.stop(), rival.stop())
}

// pick returns a random place.
func (m *model) pick(r *rand.Rand) place {
	ns := []string{"blue", "green"}[r.IntN(2)]
	return place{r.IntN(stores), storage.Key{Namespace: ns, Name: fmt.Sprint("s", r.IntN(10))}}
}

// step does one operation, or none if its place is in use.
func (m *model) step(r *rand.Rand, p, rival *process) error {
	at := m.pick(r)
	c := command{Store: at.store, Key: at.key, Timeout: opTime, Grace: grace}
	if r.IntN(2) == 0 {
		c.Chaos = chaosPlan{Rate: m.rate, Seed: r.Uint64()}
	}
	var kill time.Duration
	if r.IntN(100) == 0 {
		kill = time.Duration(1 + r.Int64N(int64(time.Millisecond)))
	}
	o := &operation{model: m, rand: r, process: p, command: c, cell: m.cells[at], kill: kill}
	switch n := r.IntN(100); {
	case n < 10:
		return o.contested(rival, o.put)
	case n < 18:
		return o.contested(rival, o.replicate)
	case n < 34:
		return o.put()
	case n < 52:
		return o.read(opRestore)
	case n < 60:
		return o.read(opVerify)
	case n < 80:
		return o.remove()
	case n < 90:
		return o.replicate()
	default:
		return o.sweep()
	}
}

// finish compares the stores with the model.
func (m *model) finish() error {
	ctx := m.t.Context()
	if err := m.compare(ctx); err != nil {
		return err
	}
	time.Sleep(grace) // what is in no manifest is old now
	for i, s := range m.look {
		if _, err := s.Sweep(ctx, storage.SweepOptions{Grace: grace}); err != nil {
			return err
		}
		if err := m.wantNamed(ctx, i); err != nil {
			return err
		}
	}
	if err := m.compare(ctx); err != nil {
		return err
	}
	return m.removeAll(ctx)
}

// removeAll removes one snapshot after the other: with each goes what no other one names, at once.
func (m *model) removeAll(ctx context.Context) error {
	for at, c := range m.cells {
		if c.id == 0 {
			continue
		}
		if err := m.look[at.store].Remove(ctx, at.key); err != nil {
			return err
		}
		c.state = state{}
		if err := m.wantNamed(ctx, at.store); err != nil {
			return fmt.Errorf("without %s: %w", at.key, err)
		}
	}
	return m.compare(ctx)
}

// compare reads every snapshot of the model, and looks for any that is in a store alone.
func (m *model) compare(ctx context.Context) error {
	for at, c := range m.cells {
		if err := m.matches(ctx, at, c.state); err != nil {
			return err
		}
	}
	for i, s := range m.look {
		err := s.List(ctx, "", func(e storage.Listed) error {
			if c := m.cells[place{i, e.Key}]; c == nil || c.id == 0 {
				return fmt.Errorf("store %d lists %s, which must not be there", i, e.Key)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// matches checks that a place has this very state.
func (m *model) matches(ctx context.Context, at place, want state) error {
	s := m.look[at.store]
	manifest, err := s.Manifest(ctx, at.key)
	switch {
	case want.id == 0 && errors.Is(err, storage.ErrNotFound):
		return nil
	case want.id == 0 && err == nil:
		return fmt.Errorf("store %d: %s is there, and must not be", at.store, at.key)
	case err != nil:
		return fmt.Errorf("store %d: %w", at.store, err)
	}
	if err := s.Verify(ctx, manifest, storage.VerifyOptions{ReadData: true}); err != nil {
		return fmt.Errorf("store %d: %w", at.store, err)
	}
	var a answer
	if err := restore(ctx, s, command{Key: at.key, Content: want.content}, &a); err != nil || a.WrongByte != "" {
		return fmt.Errorf("store %d: %s: %s %w", at.store, at.key, a.WrongByte, err)
	}
	return nil
}

// wantNamed checks that a store holds the packs that its manifests name, and no others.
func (m *model) wantNamed(ctx context.Context, store int) error {
	s, named := m.look[store], map[string]bool{}
	err := s.List(ctx, "", func(e storage.Listed) error {
		manifest, err := s.Manifest(ctx, e.Key)
		if err != nil {
			return err
		}
		for _, p := range manifest.Packs {
			named[e.Key.Namespace+"/packs/"+p.ID.String()] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, ns := range []string{"blue", "green"} {
		err := s.Backend().List(ctx, ns+"/packs/", func(o storage.ObjectInfo) error {
			if !named[o.Name] {
				return fmt.Errorf("store %d: %s is left, and nothing names it", store, o.Name)
			}
			delete(named, o.Name)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(named) > 0 {
		return fmt.Errorf("store %d: named, but gone: %v", store, slices.Collect(maps.Keys(named)))
	}
	return nil
}
