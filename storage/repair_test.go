package storage_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// pair is a snapshot and a child that shares its packs, in two stores.
type pair struct {
	spool, far *storage.Store
	child      storage.Key
	pack       string // of the snapshot
	image      storagetest.Image
}

func newPair(t *testing.T, o storage.Options) *pair {
	t.Helper()
	p := &pair{
		spool: openDir(t, o), far: openDir(t, o), child: storage.Key{Namespace: "ns", Name: "child"},
		image: tinyImage(),
	}
	m := storagetest.Write(t, p.spool, key, nil, p.image)
	storagetest.Write(t, p.spool, p.child, m, p.image)
	p.pack = objects(t, p.spool, "ns/packs/")[0]
	for _, k := range []storage.Key{key, p.child} {
		if err := storage.Replicate(t.Context(), p.far, p.spool, k, nil); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func openDir(t *testing.T, o storage.Options) *storage.Store {
	t.Helper()
	b, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := storage.Open(t.Context(), b, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// again opens the store anew, so that it remembers no keys.
func again(t *testing.T, s *storage.Store, o storage.Options) *storage.Store {
	t.Helper()
	o.Logger = nil
	again, err := storage.Open(t.Context(), s.Backend(), o)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestRepair: each object that one store has damaged, truncated or lost is restored from the other.
func TestRepair(t *testing.T) {
	for name, o := range map[string]storage.Options{"plain": {}, "encrypted": {Keyring: anyKey{}}} {
		p := newPair(t, o)
		damaged := []string{p.pack, "ns/snapshots/one/manifest"}
		damaged = append(damaged, objects(t, p.spool, "ns/keys/")...)
		for _, object := range damaged {
			for how, spoil := range map[string]func(path string, good []byte){
				"flipped": func(path string, good []byte) {
					bad := slices.Clone(good)
					bad[len(bad)/2] ^= 1
					overwrite(t, path, bad)
				},
				"cut": func(path string, good []byte) { overwrite(t, path, good[:len(good)/2]) },
				"gone": func(path string, _ []byte) {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				},
			} {
				if how == "gone" && strings.HasSuffix(object, "manifest") {
					continue // without a manifest there is no snapshot
				}
				path := objectPath(p.spool, object)
				good := content(t, path)
				spoil(path, good)
				spool := again(t, p.spool, o)
				r, err := storage.Repair(t.Context(), key, spool, []*storage.Store{p.far}, nil)
				if err != nil || !slices.Equal(r.Repaired, []string{object}) || len(r.Lost)+len(r.Hurt) != 0 {
					t.Errorf("%s: %s %s: %+v, %v", name, object, how, r, err)
				}
				if !slices.Equal(content(t, path), good) {
					t.Errorf("%s: %s %s: it is not what it was", name, object, how)
				}
				if r, err := storage.Repair(t.Context(), key, spool, []*storage.Store{p.far}, nil); err != nil ||
					len(r.Repaired) != 0 {
					t.Errorf("%s: repaired twice: %+v, %v", name, r, err)
				}
				m, err := spool.Manifest(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				storagetest.WantImage(t, m, p.image, spool)
			}
		}
	}
}

// TestRepairLost: an object without a sound copy is named, with all snapshots that need it, and left as it is.
func TestRepairLost(t *testing.T) {
	p := newPair(t, storage.Options{})
	for _, s := range []*storage.Store{p.spool, p.far} {
		path := objectPath(s, p.pack)
		bad := content(t, path)
		bad[len(bad)-3] ^= 1
		overwrite(t, path, bad)
	}
	r, err := storage.Repair(t.Context(), key, p.spool, []*storage.Store{p.far}, nil)
	if err != nil || len(r.Repaired) != 0 || len(r.Lost) != 1 || r.Lost[0].Object != p.pack ||
		!slices.Equal(r.Hurt, []storage.Key{p.child}) {
		t.Errorf("%+v, %v", r, err)
	}
	if len(objects(t, p.spool, "ns/packs/")) != 1 {
		t.Error("the damaged pack is gone")
	}
	overwrite(t, objectPath(p.spool, "ns/snapshots/one/manifest"), []byte("x"))
	if r, err := storage.Repair(t.Context(), key, p.spool, nil, nil); err != nil || len(r.Lost) != 1 {
		t.Errorf("a manifest that is nowhere else: %+v, %v", r, err)
	}
	if _, err := storage.Repair(t.Context(), storage.Key{Namespace: "ns", Name: "none"}, p.spool, nil,
		nil); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("no such snapshot: %v", err)
	}
}

// TestMissingParentPack: a child can be made even if its parent has lost a pack.
func TestMissingParentPack(t *testing.T) {
	s := storagetest.NewDir(t)
	m := storagetest.Write(t, s, key, nil, tinyImage())
	if err := s.Backend().Delete(t.Context(), objects(t, s, "ns/packs/")[0]); err != nil {
		t.Fatal(err)
	}
	child := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "child"}, m, tinyImage())
	storagetest.WantImage(t, child, tinyImage(), s)
}

// TestMarkedParent: a child reuses nothing of a parent that is marked as damaged, until the parent is whole again.
func TestMarkedParent(t *testing.T) {
	s := storagetest.NewDir(t)
	m := storagetest.Write(t, s, key, nil, tinyImage())
	if err := s.MarkDamaged(t.Context(), key, "why"); err != nil {
		t.Fatal(err)
	}
	if why, err := s.Damaged(t.Context(), key); err != nil || why != "why" {
		t.Errorf("%q, %v", why, err)
	}
	own := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "two"}, m, tinyImage())
	if own.Packs[0].ID == m.Packs[0].ID {
		t.Error("it shares a pack with a damaged snapshot")
	}
	for range 2 {
		if err := s.UnmarkDamaged(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	shared := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "three"}, m, tinyImage())
	if shared.Packs[0].ID != m.Packs[0].ID {
		t.Error("it shares no pack")
	}
}

// TestRepairBesideSweep: a sweep is about to delete the pack of a snapshot whose manifest has been damaged for long. A
// repair of that manifest must not rely on the pack.
func TestRepairBesideSweep(t *testing.T) {
	spool, s := storagetest.NewDir(t), storagetest.NewDir(t)
	storagetest.Write(t, spool, key, nil, tinyImage())
	if err := storage.Replicate(t.Context(), s, spool, key, nil); err != nil {
		t.Fatal(err)
	}
	overwrite(t, objectPath(s, "ns/snapshots/one/manifest"), []byte("torn"))
	grow(t, s, "", 48*time.Hour)
	atDelete, deleteNow := make(chan struct{}), make(chan struct{})
	sweeper := faulty(t, s, func(op fault.Op, name string) (f fault.Fault) {
		if op == fault.Delete && strings.Contains(name, "/packs/") { // there is one
			close(atDelete)
			f.Stall = deleteNow
		}
		return f
	})
	swept := make(chan error, 1)
	go func() {
		_, err := sweeper.Sweep(t.Context(), storage.SweepOptions{})
		swept <- err
	}()
	select {
	case <-atDelete:
	case err := <-swept:
		t.Fatalf("nothing is swept: %v", err)
	}
	goOn := sync.OnceFunc(func() { close(deleteNow) })
	far := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op == fault.List && strings.HasSuffix(name, "/sweeps/") {
			goOn()
		}
		return fault.Fault{}
	})
	r, err := storage.Repair(t.Context(), key, far, []*storage.Store{spool}, nil)
	goOn()
	if err := errors.Join(err, <-swept); err != nil || len(r.Lost) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	verifyAll(t, s, 1)
}
