package storage_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// withoutDelete returns a store with the objects of s and with credentials that allow no deletion. In a bucket this
// also means that no object can be overwritten.
func withoutDelete(t *testing.T, s *storage.Store) *storage.Store {
	t.Helper()
	return faulty(t, s, func(op fault.Op, name string) fault.Fault {
		exists := func() bool {
			_, err := s.Backend().Stat(t.Context(), name)
			return err == nil
		}
		if op == fault.Delete || op == fault.Replace && exists() {
			return fault.Fault{Before: storage.ErrDenied}
		}
		return fault.Fault{}
	})
}

// TestNoDeletion: with credentials that allow no deletion, snapshots are stored, held and read. They are not removed,
// and whoever tries learns why. docs/install/stores.md recommends such credentials for nodes.
func TestNoDeletion(t *testing.T) {
	src, bucket := storagetest.NewDir(t), storagetest.NewDir(t)
	image := tinyImage()
	storagetest.Write(t, src, key, nil, image)
	s := withoutDelete(t, bucket)
	if err := storage.Replicate(t.Context(), s, src, key, nil); err != nil {
		t.Fatalf("replicate: %v", err)
	}
	m, err := s.Manifest(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	hold, err := s.Hold(t.Context(), m)
	if err != nil {
		t.Fatalf("hold: %v", err)
	}
	if err := hold.Refresh(t.Context()); err != nil {
		t.Errorf("refresh a hold: %v", err)
	}
	storagetest.WantImage(t, m, image, s)
	if err := hold.Release(t.Context()); err != nil {
		t.Errorf("release a hold: %v", err)
	}
	if err := s.Remove(t.Context(), key); !errors.Is(err, storage.ErrDenied) {
		t.Errorf("remove: %v, want %v", err, storage.ErrDenied)
	}
	verifyAll(t, bucket, 1)
	// What has ended keeps nothing: who may delete removes all at once.
	if err := bucket.Remove(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if left := objects(t, bucket, "ns/"); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// TestNoDeletionSlow: a replication that takes so long that it lays its claim again needs no right to overwrite it.
func TestNoDeletionSlow(t *testing.T) {
	src, bucket := storagetest.NewDir(t), storagetest.NewDir(t)
	storagetest.Write(t, src, key, nil, tinyImage())
	var c clocks
	laid := make(chan struct{})
	s := faulty(t, withoutDelete(t, bucket), func(op fault.Op, name string) fault.Fault {
		switch {
		case op == fault.Create && strings.Contains(name, "/claims/") && c.boot.Load() == 0:
			close(laid)
		case op == fault.Create && strings.Contains(name, "/packs/"): // there is one
			<-laid
			c.wall.Add(int64(time.Minute))
			c.boot.Add(int64(time.Minute))
		}
		return fault.Fault{}
	})
	c.set(s)
	if err := storage.Replicate(t.Context(), s, src, key, nil); err != nil {
		t.Fatalf("replicate: %v", err)
	}
	if claims := objects(t, bucket, "ns/claims/"); len(claims) != 4 {
		t.Errorf("claims: %q, want two, each with a mark that it is released", claims)
	}
	if err := bucket.Remove(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if left := objects(t, bucket, "ns/"); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// TestRenewedHold: whenever somebody has listed the claims, among them that of a hold, and is about to read them, the
// hold is refreshed. Its claim must be found.
func TestRenewedHold(t *testing.T) {
	s := storagetest.NewDir(t)
	m := storagetest.Write(t, s, key, nil, tinyImage())
	hold, err := s.Hold(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	refreshed := false
	remover := faulty(t, s, func(op fault.Op, name string) fault.Fault {
		if op == fault.ReadAt && strings.Contains(name, "/claims/") {
			refreshed = true
			if err := hold.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
		}
		return fault.Fault{}
	})
	if err := remover.Remove(t.Context(), key); err != nil || !refreshed {
		t.Fatalf("refreshed: %v, %v", refreshed, err)
	}
	storagetest.WantImage(t, m, tinyImage(), s)
	if err := hold.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := objects(t, s, "ns/"); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// TestHostileNotice: somebody who may only create objects, or a sweep that died, has left a notice of packs that a
// replication needs. The replication may not delete it. It waits for a young notice as long as that counts, and for an
// old one not at all, not even if it is too large to be read.
func TestHostileNotice(t *testing.T) {
	for name, test := range map[string]struct {
		age   time.Duration
		large bool
		looks int // one before and one after the manifest is made, and those of a wait
	}{
		"young":         {looks: 3},
		"old":           {age: 2 * storage.NoticeLife, looks: 2},
		"old and large": {age: 2 * storage.NoticeLife, large: true, looks: 2},
	} {
		src, bucket := storagetest.NewDir(t), storagetest.NewDir(t)
		m := storagetest.Write(t, src, key, nil, tinyImage())
		if err := storage.Replicate(t.Context(), bucket, src, key, nil); err != nil {
			t.Fatal(err)
		}
		storagetest.Orphan(t, bucket, key)
		giveNotice(t, bucket)
		if test.large {
			if err := os.Truncate(objectPath(bucket, "ns/sweeps/other"), 32<<20); err != nil {
				t.Fatal(err)
			}
		}
		grow(t, bucket, "ns/sweeps/", test.age)
		var c clocks
		s := afterWait(t, withoutDelete(t, bucket), &c, test.looks)
		if err := storage.Replicate(t.Context(), s, src, key, nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		storagetest.WantImage(t, m, tinyImage(), bucket)
		if _, err := bucket.Sweep(t.Context(), storage.SweepOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoDeletionRotates: with such credentials the spool's keys are rotated, and those of the bucket are counted. Who
// may overwrite rotates them afterwards. docs/tasks/encryption-signing.md has these steps.
func TestNoDeletionRotates(t *testing.T) {
	spool, bucket := storagetest.NewDir(t), storagetest.NewDir(t)
	image := tinyImage()
	former := keyDir(t, "ns", hexKey(1))
	storagetest.Write(t, locked(t, spool, former), key, nil, image)
	storagetest.Write(t, locked(t, spool, former), storage.Key{Namespace: "ns", Name: "two"}, nil, image)
	for _, name := range []string{"one", "two"} {
		k := storage.Key{Namespace: "ns", Name: name}
		if err := storage.Replicate(t.Context(), locked(t, bucket, former), locked(t, spool, former), k, nil); err != nil {
			t.Fatal(err)
		}
	}
	both := keyDir(t, "ns", hexKey(2)+"\n"+hexKey(1))
	agents := withoutDelete(t, bucket)
	for _, step := range []struct {
		what string
		s    *storage.Store
		want storage.RewrapResult
	}{
		{"the spool", locked(t, spool, both), storage.RewrapResult{Keys: 2, Rewrapped: 2}},
		{"the bucket, by the agent", locked(t, agents, both), storage.RewrapResult{Keys: 2, Denied: 2}},
		{"the bucket, by the controller", locked(t, bucket, both), storage.RewrapResult{Keys: 2, Rewrapped: 2}},
		{"the bucket, by the agent again", locked(t, agents, both), storage.RewrapResult{Keys: 2}},
	} {
		if r, err := step.s.Rewrap(t.Context(), storage.RewrapOptions{}); r != step.want || err != nil {
			t.Errorf("%s: %+v, %v", step.what, r, err)
		}
	}
	s := locked(t, agents, keyDir(t, "ns", hexKey(2)))
	m, err := s.Manifest(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	storagetest.WantImage(t, m, image, s)
}
