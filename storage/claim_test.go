package storage_test

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// TestDiesWhileSwept: a writer dies as soon as it has made its manifest. Its parent is being removed, and a sweep has
// condemned the parent's packs. The snapshot must be whole.
func TestDiesWhileSwept(t *testing.T) {
	s := storagetest.NewDir(t)
	parent := storagetest.Write(t, s, key, nil, tinyImage())
	for _, name := range objects(t, s, "ns/packs/") { // they are older than the grace, a claim is younger
		if err := os.Chtimes(objectPath(s, name), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	options := storage.SweepOptions{Grace: time.Hour}

	atDelete, deleteNow := make(chan struct{}), make(chan struct{})
	sweeper := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op == fault.Delete && strings.Contains(name, "/packs/") {
			close(atDelete) // there is one pack
			return fault.Fault{Stall: deleteNow}
		}
		return fault.Fault{}
	})
	swept := make(chan error, 1)
	var dead atomic.Bool
	victim := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		switch {
		case dead.Load():
			return fault.Fault{Before: errInjected}
		case op == fault.Create && strings.HasSuffix(name, "/manifest"):
			if err := s.Remove(t.Context(), key); err != nil {
				t.Error(err)
			}
			go func() {
				_, err := sweeper.Sweep(t.Context(), options)
				swept <- err
			}()
			select { // until the sweep has read everything
			case <-atDelete:
			case err := <-swept:
				swept <- err
			}
			dead.Store(true)
		}
		return fault.Fault{}
	})
	w, err := victim.NewWriter(t.Context(), storage.Key{Namespace: "ns", Name: "child"},
		storage.WriterOptions{Parent: parent})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, c := range tinyImage()["pages.img"] {
		if err := w.File("pages.img").Chunk(c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context(), snapshot.Meta{}); err == nil {
		t.Error("the dead writer committed")
	}
	close(deleteNow)
	if err := <-swept; err != nil {
		t.Fatal(err)
	}
	verifyAll(t, s, 1)
}

// TestClaimsEnd: once the claim of a dead writer is as old as the grace, the claim and the claimed objects are swept.
func TestClaimsEnd(t *testing.T) {
	s := storagetest.NewDir(t)
	var dead atomic.Bool
	victim := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op == fault.Create && strings.HasSuffix(name, "/manifest") {
			dead.Store(true)
		}
		if dead.Load() {
			return fault.Fault{Before: errInjected}
		}
		return fault.Fault{}
	})
	if err := write(t, victim, key); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	if claims := objects(t, s, "ns/claims/"); len(claims) != 1 {
		t.Fatalf("claims of the dead: %q", claims)
	}
	time.Sleep(30 * time.Millisecond) // a backend's clock may be coarse
	if _, err := s.Sweep(t.Context(), storage.SweepOptions{Grace: 1}); err != nil {
		t.Fatal(err)
	}
	if left := objects(t, s, "ns/"); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}
