package storage_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/cache"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// TestRemoveBesideReplication: a removal spares the packs that a replication has found in the store and is about to
// name, whatever the replication is doing.
func TestRemoveBesideReplication(t *testing.T) {
	for _, at := range []struct {
		op   fault.Op
		name string
	}{
		{fault.Stat, "/packs/"},
		{fault.Create, "/claims/"},
		{fault.List, "/sweeps/"},
		{fault.Create, "/manifest"},
		{fault.Delete, "/claims/"},
	} {
		spool, s := storagetest.NewDir(t), storagetest.NewDir(t)
		image := tinyImage()
		parent := storagetest.Write(t, spool, key, nil, image)
		child := storagetest.Write(t, spool, storage.Key{Namespace: "ns", Name: "child"}, parent, image)
		if err := storage.Replicate(t.Context(), s, spool, key, nil); err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		removed := false
		far := faulty(t, s, func(op fault.Op, name string) fault.Fault {
			if op == at.op && strings.Contains(name, at.name) {
				once.Do(func() {
					removed = true
					if err := s.Remove(t.Context(), key); err != nil {
						t.Error(err)
					}
				})
			}
			return fault.Fault{}
		})
		if err := storage.Replicate(t.Context(), far, spool, child.Meta.Key, nil); err != nil || !removed {
			t.Fatalf("%s %s: removed: %v, %v", at.op, at.name, removed, err)
		}
		storagetest.WantImage(t, child, image, s)
		if left := objects(t, s, "ns/claims/"); len(left) != 0 {
			t.Errorf("%s %s: left: %q", at.op, at.name, left)
		}
	}
}

// TestRemoveLeaves: a removal succeeds if the manifest can be deleted, even if the packs cannot. A sweep deletes the
// rest.
func TestRemoveLeaves(t *testing.T) {
	for _, at := range []struct {
		op   fault.Op
		name string
	}{{fault.Replace, "/sweeps/"}, {fault.List, "/claims/"}, {fault.Stat, "/sweeps/"}, {fault.Delete, "/packs/"}} {
		s := storagetest.NewDir(t)
		storagetest.Write(t, s, key, nil, tinyImage())
		far := faulty(t, s, func(op fault.Op, name string) (f fault.Fault) {
			if op == at.op && strings.Contains(name, at.name) {
				f.Before = errInjected
			}
			return f
		})
		if err := far.Remove(t.Context(), key); err != nil {
			t.Errorf("%s %s: %v", at.op, at.name, err)
		}
		if packs := objects(t, s, "ns/packs/"); len(packs) != 1 {
			t.Errorf("%s %s: packs left: %q", at.op, at.name, packs)
		}
		time.Sleep(20 * time.Millisecond) // a backend's clock may be coarse
		if _, err := s.Sweep(t.Context(), storage.SweepOptions{Grace: 1}); err != nil {
			t.Error(err)
		}
		if left := objects(t, s, "ns/"); len(left) != 0 {
			t.Errorf("%s %s: left: %q", at.op, at.name, left)
		}
	}
}

// TestRemoveDamaged: a snapshot with a damaged manifest can be removed. Its packs wait for a sweep. So do the packs of
// other snapshots, as long as it is not known what the damaged one needs.
func TestRemoveDamaged(t *testing.T) {
	s := storagetest.NewDir(t)
	other := storage.Key{Namespace: "ns", Name: "other"}
	for _, k := range []storage.Key{key, other} {
		storagetest.Write(t, s, k, nil, tinyImage())
	}
	overwrite(t, objectPath(s, "ns/snapshots/one/manifest"), []byte("torn"))
	for _, k := range []storage.Key{other, key} {
		if err := s.Remove(t.Context(), k); err != nil {
			t.Errorf("%s: %v", k, err)
		}
		if _, err := s.Manifest(t.Context(), k); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: %v", k, err)
		}
	}
	if packs := objects(t, s, "ns/packs/"); len(packs) != 2 {
		t.Errorf("packs left: %q", packs)
	}
}

// TestRemoveReadsManifestsOnce: removing many snapshots does not read all other manifests each time.
func TestRemoveReadsManifestsOnce(t *testing.T) {
	s := storagetest.NewDir(t)
	var keys []storage.Key
	for i := range 20 {
		keys = append(keys, storage.Key{Namespace: "ns", Name: "s" + string(rune('a'+i))})
		storagetest.Write(t, s, keys[i], nil, tinyImage())
	}
	for _, k := range keys { // make them look old
		err := os.Chtimes(objectPath(s, "ns/snapshots/"+k.Name+"/manifest"), time.Time{}, time.Now().Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
	}
	var reads atomic.Int64
	far := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op == fault.ReadAt && strings.HasSuffix(name, "/manifest") {
			reads.Add(1)
		}
		return fault.Fault{}
	})
	for _, k := range keys {
		if err := far.Remove(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	if n, most := reads.Load(), int64(2*len(keys)); n > most {
		t.Errorf("%d manifests read, at most %d expected", n, most)
	}
}

// TestRemoveFromCache: nothing of a removed snapshot stays in the cache of the node that removes it.
func TestRemoveFromCache(t *testing.T) {
	plain := storagetest.NewDir(t)
	c, err := cache.Open(t.TempDir(), cache.Options{MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // nothing is lost
	s, err := storage.Open(t.Context(), plain.Backend(), storage.Options{Cache: c})
	if err != nil {
		t.Fatal(err)
	}
	m := storagetest.Write(t, s, key, nil, tinyImage())
	storagetest.WantImage(t, m, tinyImage(), s)
	if c.Bytes() == 0 {
		t.Fatal("nothing in the cache")
	}
	if err := s.Remove(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if n := c.Bytes(); n != 0 {
		t.Errorf("%d bytes left in the cache", n)
	}
}

// TestDiesWhileRemoved: a replication dies as soon as it has made its manifest. It had found packs that only a snapshot
// named that is being removed. The new snapshot must be whole.
func TestDiesWhileRemoved(t *testing.T) {
	spool, s := storagetest.NewDir(t), storagetest.NewDir(t)
	parent := storagetest.Write(t, spool, key, nil, tinyImage())
	child := storagetest.Write(t, spool, storage.Key{Namespace: "ns", Name: "child"}, parent, tinyImage())
	if err := storage.Replicate(t.Context(), s, spool, key, nil); err != nil {
		t.Fatal(err)
	}
	var dead atomic.Bool
	victim := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if dead.Load() {
			return fault.Fault{Before: errInjected}
		}
		if op == fault.Create && strings.HasSuffix(name, "/manifest") {
			if err := s.Remove(t.Context(), key); err != nil {
				t.Error(err)
			}
			dead.Store(true)
		}
		return fault.Fault{}
	})
	if err := storage.Replicate(t.Context(), victim, spool, child.Meta.Key, nil); err == nil {
		t.Error("the dead replication succeeded")
	}
	verifyAll(t, s, 1)
}
