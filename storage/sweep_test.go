package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// node is a Backend as seen by a node whose clock is wrong, and with it the times of everything that it writes.
type node struct {
	storage.Backend
	off time.Duration
}

func (n node) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	info, err := n.Backend.Stat(ctx, name)
	info.Modified = info.Modified.Add(n.off)
	return info, err
}

func (n node) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	return n.Backend.List(ctx, prefix, func(o storage.ObjectInfo) error {
		o.Modified = o.Modified.Add(n.off)
		return fn(o)
	})
}

// TestSweepClock: the backend's clock determines how old a pack is, not the node's.
func TestSweepClock(t *testing.T) {
	s := storagetest.NewDir(t)
	storagetest.Write(t, s, key, nil, tinyImage())
	storagetest.Orphan(t, s, key)
	for _, off := range []time.Duration{-time.Hour, time.Hour, 0} {
		far := storagetest.OpenStore(t, node{s.Backend(), off})
		result, err := far.Sweep(t.Context(), storage.SweepOptions{Grace: 30 * time.Minute})
		if err != nil || result.Young != 1 || result.Deleted != 0 {
			t.Errorf("clock off by %v: %+v, %v", off, result, err)
		}
	}
	if left := objects(t, s, "ns/sweeps/"); len(left) != 0 {
		t.Errorf("notices left: %q", left)
	}
}

// TestSweepBesideWriters: sweeps with no grace run on several nodes with wrong clocks, beside writers of lineages,
// removals and replications. Every snapshot that was committed and not removed must be whole.
func TestSweepBesideWriters(t *testing.T) {
	s, spool := storagetest.NewDir(t), storagetest.NewDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 2 {
		far := storagetest.OpenStore(t, node{s.Backend(), time.Duration(2*i-1) * time.Hour})
		wg.Go(func() {
			for ctx.Err() == nil {
				grace := []time.Duration{1, 20 * time.Millisecond, 200 * time.Millisecond}[rand.IntN(3)]
				if _, err := far.Sweep(ctx, storage.SweepOptions{Grace: grace}); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				time.Sleep(rand.N(20 * time.Millisecond))
			}
		})
	}
	var mu sync.Mutex
	committed, failed := map[storage.Key]bool{}, 0
	for i := range 3 {
		wg.Go(func() {
			src := s
			if i == 2 {
				src = spool
			}
			var parent *storage.Manifest
			for n := 0; ctx.Err() == nil; n++ {
				k := storage.Key{Namespace: "ns", Name: fmt.Sprintf("w%d-%d", i, n)}
				m, err := writeSlowly(ctx, src, k, parent, uint64(n))
				if err == nil && src == spool {
					err = storage.Replicate(ctx, s, spool, k, nil)
				}
				mu.Lock()
				if committed[k] = err == nil; err != nil {
					failed++
				}
				mu.Unlock()
				if ctx.Err() == nil && err != nil && !errors.Is(err, storage.ErrUnavailable) &&
					!errors.Is(err, storage.ErrNotFound) {
					t.Error(err)
				}
				if err != nil {
					continue
				}
				if parent != nil && n%2 == 0 {
					mu.Lock()
					delete(committed, parent.Meta.Key)
					mu.Unlock()
					if err := s.Remove(ctx, parent.Meta.Key); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
				parent = m
			}
		})
	}
	wg.Wait()
	whole := 0
	for k, ok := range committed {
		if !ok {
			continue
		}
		m, err := s.Manifest(t.Context(), k)
		if err == nil {
			err = s.Verify(t.Context(), m, storage.VerifyOptions{ReadData: true})
		}
		if err != nil {
			t.Errorf("%s: %v", k, err)
		}
		whole++
	}
	t.Logf("%d snapshots are whole, %d were not made", whole, failed)
	if whole == 0 {
		t.Error("no snapshot was made")
	}
}

func writeSlowly(ctx context.Context, s *storage.Store, k storage.Key, parent *storage.Manifest,
	seed uint64,
) (*storage.Manifest, error) {
	w, err := s.NewWriter(ctx, k, storage.WriterOptions{Parent: parent})
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	for i := range uint64(4) {
		if err := w.File("pages.img").Chunk(storagetest.Bytes((seed+i)/2, 3000)); err != nil {
			return nil, err
		}
	}
	time.Sleep(rand.N(10 * time.Millisecond))
	return w.Commit(ctx, snapshot.Meta{})
}

// TestSweepKeysAndStrays: data keys and objects beside a snapshot are swept once the snapshot is gone.
func TestSweepKeysAndStrays(t *testing.T) {
	plain := storagetest.NewDir(t)
	s := locked(t, plain, keyDir(t, "ns", hexKey(1)))
	other := storage.Key{Namespace: "ns", Name: "other"}
	for _, k := range []storage.Key{key, other} {
		storagetest.Write(t, s, k, nil, tinyImage())
	}
	storagetest.Orphan(t, s, key)
	for _, name := range []string{"one", "other"} { // the first is written after the removal
		if err := s.Backend().Replace(t.Context(), "ns/snapshots/"+name+"/workingset", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	result, err := plain.Sweep(t.Context(), storage.SweepOptions{Grace: 1}) // without the key
	if err != nil || result.Deleted != 3 || result.Named != 3 {
		t.Errorf("%+v, %v", result, err)
	}
	left := strings.Join(objects(t, s, "ns/"), " ")
	for _, want := range []string{
		"ns/keys/", "ns/packs/", "ns/snapshots/other/manifest",
		"ns/snapshots/other/workingset",
	} {
		if strings.Count(left, want) != 1 {
			t.Errorf("left: %s", left)
		}
	}
}

// TestHostileManifest: somebody has put garbage into the place of a manifest. While it is young, its namespace is not
// swept, and others are. Once it is a day old it names nothing.
func TestHostileManifest(t *testing.T) {
	s, log := loggedStore(t)
	for _, ns := range []string{"ns", "other"} {
		k := storage.Key{Namespace: ns, Name: "gone"}
		storagetest.Write(t, s, k, nil, tinyImage())
		storagetest.Orphan(t, s, k)
	}
	storagetest.Write(t, s, key, nil, tinyImage())
	if err := s.Backend().Replace(t.Context(), "ns/snapshots/x/manifest", []byte("abc")); err != nil {
		t.Fatal(err)
	}
	grow(t, s, "", time.Hour)
	options := storage.SweepOptions{Grace: time.Minute}
	r, err := s.Sweep(t.Context(), options)
	if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "ns/x") || r.Deleted != 1 {
		t.Errorf("while it is young: %+v, %v", r, err)
	}
	grow(t, s, "", 24*time.Hour)
	if r, err = s.Sweep(t.Context(), options); err != nil || r.Deleted != 1 || r.Named != 1 {
		t.Errorf("once it is old: %+v, %v", r, err)
	}
	if n := strings.Count(log.String(), "snapshot=ns/x"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
	storagetest.WantImage(t, manifest(t, s, key), tinyImage(), s)
}

// TestSweepSparesOtherFormats: a manifest of another version of the program is not damaged, however old it is. What it
// names is not swept.
func TestSweepSparesOtherFormats(t *testing.T) {
	s := storagetest.NewDir(t)
	storagetest.Write(t, s, key, nil, tinyImage())
	path := objectPath(s, "ns/snapshots/one/manifest")
	data := content(t, path)
	body := data[:len(data)-32]
	body[8] = 3 // the version
	digest := blake3.Sum256(body)
	overwrite(t, path, append(body, digest[:]...))
	grow(t, s, "", 48*time.Hour)
	if r, err := s.Sweep(t.Context(), storage.SweepOptions{}); !errors.Is(err, storage.ErrFormat) || r.Deleted > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestSweepReadsAgain: the first reading of a sound manifest shows garbage. What the manifest names is not swept.
func TestSweepReadsAgain(t *testing.T) {
	s := storagetest.NewDir(t)
	storagetest.Write(t, s, key, nil, tinyImage())
	grow(t, s, "", 48*time.Hour)
	reads := 0
	far := faulty(t, s, func(op fault.Op, name string) (f fault.Fault) {
		if op == fault.ReadAt && strings.HasSuffix(name, "/manifest") {
			reads++
			f.Flip = reads == 1
		}
		return f
	})
	if r, err := far.Sweep(t.Context(), storage.SweepOptions{}); err != nil || r.Deleted > 0 || r.Named != 1 || reads < 2 {
		t.Errorf("%+v after %d reads, %v", r, reads, err)
	}
	storagetest.WantImage(t, manifest(t, s, key), tinyImage(), s)
}

// loggedStore returns a store and what it logs.
func loggedStore(t *testing.T) (*storage.Store, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	return openDir(t, storage.Options{Logger: slog.New(slog.NewTextHandler(log, nil))}), log
}

func manifest(t *testing.T, s *storage.Store, k storage.Key) *storage.Manifest {
	t.Helper()
	m, err := s.Manifest(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
