package recovery

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/failpoint"
)

// instants returns how many processes are killed at random.
func instants() int {
	if testing.Short() {
		return 50
	}
	return 500
}

// sharedMemory is a file system in memory, on which a write costs nothing. Killing a process shows
// nothing about power cuts, and so nothing is lost by having no disk.
const sharedMemory = "/dev/shm"

// world is what outlives the processes.
type world struct {
	t    *testing.T
	path string
	node *node
	seen map[*storage.Store]map[string][32]byte // digests of manifests
}

func newWorld(t *testing.T) *world {
	t.Helper()
	path, err := os.MkdirTemp(sharedMemory, "diapause-recovery-")
	if err != nil {
		path = t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
	n, err := openNode(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, path: path, node: n, seen: map[*storage.Store]map[string][32]byte{}}
	return w
}

// start starts a process and returns when it has begun its life.
func (w *world) start(ctx context.Context, env ...string) (wait func() error) {
	w.t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(append(os.Environ(), victim+"="+w.path), env...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil && !errors.Is(err, io.EOF) { // it may be dead by now
		w.t.Fatal(err)
	}
	return func() error {
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			return nil
		}
		return fmt.Errorf("ended by itself: %w: %s", err, &said)
	}
}

// check looks at both stores after a death.
func (w *world) check(when string) {
	w.t.Helper()
	for _, s := range w.node.stores() {
		if err := w.checkStore(s); err != nil {
			w.t.Fatalf("killed %s: %s: %v", when, s.Backend().Location(), err)
		}
	}
}

// checkStore: what is listed is whole and unchanged, what is gone is what is removed first, and a
// sweep leaves what is named and nothing else.
func (w *world) checkStore(s *storage.Store) error {
	ctx := w.t.Context()
	names, err := list(ctx, s)
	if err != nil {
		return err
	}
	now, packs := map[string][32]byte{}, map[string]bool{}
	for _, name := range names {
		m, err := s.Manifest(ctx, key(name))
		if err != nil {
			return err
		}
		if err := s.Verify(ctx, m, storage.VerifyOptions{ReadData: true}); err != nil {
			return err
		}
		if before, ok := w.seen[s][name]; ok && before != m.Digest {
			return fmt.Errorf("snapshot %s is another one", name)
		}
		now[name] = m.Digest
		for _, p := range m.Packs {
			packs[p.ID.String()] = true
		}
	}
	if err := w.lost(s, names, now); err != nil {
		return err
	}
	w.seen[s] = now
	if _, err := s.Sweep(ctx, sweepNow); err != nil {
		return err
	}
	return wantPacks(ctx, s, packs)
}

// lost returns an error if a snapshot is gone and an older one is still there: the processes remove
// the oldest first. (The newest of the store is removed too, to damage it: it comes back.)
func (w *world) lost(s *storage.Store, names []string, now map[string][32]byte) error {
	if s != w.node.spool || len(names) == 0 {
		return nil
	}
	for name := range w.seen[s] {
		if _, ok := now[name]; !ok && name > names[0] {
			return fmt.Errorf("snapshot %s is gone, the older %s is not", name, names[0])
		}
	}
	return nil
}

// wantPacks checks that a store has these packs and no other object that is not a manifest.
func wantPacks(ctx context.Context, s *storage.Store, want map[string]bool) error {
	have := 0
	err := s.Backend().List(ctx, namespace+"/packs/", func(o storage.ObjectInfo) error {
		have++
		if !want[filepath.Base(o.Name)] {
			return fmt.Errorf("%s is left and nothing names it", o.Name)
		}
		return nil
	})
	if err == nil && have != len(want) {
		err = fmt.Errorf("%d packs are named, %d are there", len(want), have)
	}
	return err
}

// TestKilledAtFailpoints kills a process at each step of the protocol, at its first, second and fifth
// passage.
func TestKilledAtFailpoints(t *testing.T) {
	for _, p := range failpoint.Points {
		t.Run(string(p), func(t *testing.T) {
			w := newWorld(t)
			for _, n := range []int{1, 2, 5} {
				at := fmt.Sprintf("%s#%d", p, n)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				err := w.start(ctx, failpoint.Variable+"="+at)()
				reached := ctx.Err() == nil
				cancel()
				if err != nil || !reached {
					t.Fatalf("a process that was to die at %q did not come there: %v", at, err)
				}
				w.check("at " + at)
			}
		})
	}
}

// TestKilledAnywhere kills processes at random instants, all over the same stores.
func TestKilledAnywhere(t *testing.T) {
	w := newWorld(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range instants() {
		after := time.Duration(r.Int64N(int64(25 * time.Millisecond)))
		ctx, cancel := context.WithCancel(t.Context())
		wait := w.start(ctx)
		time.Sleep(after)
		cancel()
		if err := wait(); err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
		w.check(fmt.Sprintf("process %d after %v", i, after))
	}
	names, err := list(t.Context(), w.node.spool)
	if err != nil || len(names) == 0 {
		t.Fatalf("no process came as far as a snapshot: %v", err)
	}
	t.Logf("%d processes killed, the last snapshot is %s", instants(), names[len(names)-1])
	w.wantNoTemporaryFiles()
}

// wantNoTemporaryFiles: what killed writers left half-written goes when a store is opened an hour
// later.
func (w *world) wantNoTemporaryFiles() {
	for _, name := range []string{"spool", "store"} {
		temp := filepath.Join(w.path, name, ".tmp")
		left, err := os.ReadDir(temp)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range left {
			if err := os.Chtimes(filepath.Join(temp, e.Name()), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
				w.t.Fatal(err)
			}
		}
		b, err := dir.Open(filepath.Join(w.path, name))
		if err != nil {
			w.t.Fatal(err)
		}
		defer b.Close() // nothing was written
		w.t.Logf("%s: %d temporary files of the dead", name, len(left))
		if left, err = os.ReadDir(temp); err != nil || len(left) != 0 {
			w.t.Errorf("%s: %d temporary files left, %v", name, len(left), err)
		}
	}
}
