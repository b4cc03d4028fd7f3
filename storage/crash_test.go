package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// The process that is killed is this test binary. Its environment says where to write and, if it is to kill itself, at
// which operation: "before 3" is right before the third.
const (
	crashDir = "DIAPAUSE_TEST_CRASH_DIR"
	crashAt  = "DIAPAUSE_TEST_CRASH_AT"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashDir); path != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(path, os.Getenv(crashAt)))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// writeUntilKilled writes a lineage of snapshots, each the parent of the next, and removes old ones.
func writeUntilKilled(path, at string) error {
	b, err := dir.Open(path)
	if err != nil {
		return err
	}
	ctx := context.Background()
	s, err := storage.Open(ctx, &suicidal{Backend: b, at: at}, storage.Options{})
	if err != nil {
		return err
	}
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	var parent *storage.Manifest
	for i := 0; ; i++ {
		k := storage.Key{Namespace: "ns", Name: fmt.Sprintf("r%s.%d", run, i)}
		w, err := s.NewWriter(ctx, k, storage.WriterOptions{Parent: parent})
		if err != nil {
			return err
		}
		for j := range 20 {
			if err := w.File("pages.img").Chunk(storagetest.Bytes(uint64(i/3+j), 20000)); err != nil {
				return err
			}
		}
		if parent, err = w.Commit(ctx, snapshot.Meta{}); err != nil {
			return err
		}
		if i >= 3 {
			old := storage.Key{Namespace: "ns", Name: fmt.Sprintf("r%s.%d", run, i-3)}
			if err := s.Remove(ctx, old); err != nil {
				return err
			}
		}
	}
}

// suicidal is a Backend that kills its process around one of its operations.
type suicidal struct {
	storage.Backend
	at string
	n  int
}

func (b *suicidal) step(when string) {
	if b.at == when+" "+strconv.Itoa(b.n) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal takes a moment
	}
}

func (b *suicidal) Delete(ctx context.Context, name string) error {
	b.n++
	b.step("before")
	defer b.step("after")
	return b.Backend.Delete(ctx, name)
}

// crash runs the writer over a directory and returns once the writer is dead: it kills itself, or is killed after a
// while.
func crash(t *testing.T, path, at string, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+path, crashAt+"="+at)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the writer ended by itself: %v: %s", err, out)
	}
	if at != "" && ctx.Err() != nil {
		t.Fatalf("the writer did not come to %q", at)
	}
}

// survivors checks that every snapshot that exists is whole, and returns the bytes of their
// manifests.
func survivors(t *testing.T, s *storage.Store) map[storage.Key]string {
	t.Helper()
	found := map[storage.Key]string{}
	err := s.List(t.Context(), "", func(e storage.Listed) error {
		m, err := s.Manifest(t.Context(), e.Key)
		if err != nil {
			return err
		}
		found[e.Key] = string(m.Digest[:])
		return s.Verify(t.Context(), m, storage.VerifyOptions{ReadData: true})
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantSwept checks that after a sweep the store holds what the manifests name and nothing else.
func wantSwept(t *testing.T, s *storage.Store) {
	t.Helper()
	if _, err := s.Sweep(t.Context(), storage.SweepOptions{Grace: 1}); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for k := range survivors(t, s) {
		m, err := s.Manifest(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Packs {
			named["ns/packs/"+p.ID.String()] = true
		}
	}
	for _, name := range objects(t, s, "ns/packs/") {
		if !named[name] {
			t.Errorf("%s is left and nothing names it", name)
		}
		delete(named, name)
	}
	if len(named) != 0 {
		t.Errorf("named, but gone: %v", named)
	}
}

func crashStore(t *testing.T) (*storage.Store, string) {
	t.Helper()
	s := storagetest.NewDir(t)
	return s, strings.TrimPrefix(s.Backend().Location(), "dir:")
}

// TestKilledAnywhere kills a writer at random instants. Older snapshots must not change, all snapshots that exist must
// be whole, and a sweep must leave only what they name.
func TestKilledAnywhere(t *testing.T) {
	s, path := crashStore(t)
	life, before := 50*time.Millisecond, map[storage.Key]string{}
	for ; len(before) == 0; life *= 2 { // until a writer comes as far as a snapshot on this machine
		crash(t, path, "", life)
		before = survivors(t, s)
	}
	for range 25 {
		crash(t, path, "", life/10+rand.N(life))
		now := survivors(t, s)
		for k, digest := range before {
			if now[k] != digest {
				t.Fatalf("%s was changed", k)
			}
		}
		before = now
	}
	wantSwept(t, s)
	temps, err := os.ReadDir(filepath.Join(path, ".tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range temps { // so that a later Open takes their writers for dead
		if err := os.Chtimes(filepath.Join(path, ".tmp", e.Name()), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if temps, err = os.ReadDir(filepath.Join(path, ".tmp")); err != nil || len(temps) != 0 {
		t.Errorf("%d temporary files left, %v", len(temps), err)
	}
}

// TestKilledAtRemove kills a process before and after each step of a removal.
func TestKilledAtRemove(t *testing.T) {
	for n := range 3 {
		for _, when := range []string{"before", "after"} {
			s, path := crashStore(t)
			crash(t, path, fmt.Sprint(when, " ", n+1), time.Minute)
			survivors(t, s)
			wantSwept(t, s)
		}
	}
}

// TestKilledBetweenPackAndManifest: packs that no manifest names are swept when they are old.
func TestKilledBetweenPackAndManifest(t *testing.T) {
	s := storagetest.NewDir(t)
	f := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op == fault.Delete || op == fault.Create && strings.HasSuffix(name, "/manifest") {
			return fault.Fault{Before: errInjected} // as if the process were dead
		}
		return fault.Fault{}
	})
	if err := write(t, f, key); err == nil {
		t.Fatal("committed")
	}
	verifyAll(t, s, 0)
	if n := len(objects(t, s, "ns/packs/")); n != 1 {
		t.Fatalf("%d packs", n)
	}
	wantSwept(t, s)
}
