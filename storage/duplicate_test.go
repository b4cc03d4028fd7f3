package storage_test

import (
	"crypto/ed25519"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// second is the key of the second snapshot of the same packs.
var second = storage.Key{Namespace: key.Namespace, Name: "second"}

// sweep sweeps a store whose packs are two hours old.
func sweep(t *testing.T, s *storage.Store) {
	t.Helper()
	for _, name := range objects(t, s, "ns/packs/") {
		if err := os.Chtimes(objectPath(s, name), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Sweep(t.Context(), storage.SweepOptions{Grace: time.Hour}); err != nil {
		t.Error(err)
	}
}

// TestDuplicate makes a second snapshot of the same packs, plain and encrypted, also after the namespace got another
// key. Each of the two outlives the other, and a replication of the second one copies no pack again.
func TestDuplicate(t *testing.T) {
	for name, rotated := range map[string][2]string{
		"plain": {}, "encrypted": {hexKey(1), hexKey(1)}, "rotated": {hexKey(1), hexKey(2) + "\n" + hexKey(1)},
	} {
		for _, removed := range []storage.Key{key, second} {
			plain, far, image := storagetest.NewDir(t), storagetest.NewDir(t), secretImage()
			s := plain
			if rotated[0] != "" {
				s = locked(t, plain, keyDir(t, "ns", rotated[0]))
			}
			first := storagetest.Write(t, s, key, nil, image)
			if rotated[0] != "" {
				keys := keyDir(t, "ns", rotated[1])
				s, far = locked(t, plain, keys), locked(t, far, keys)
			}
			if err := storage.Replicate(t.Context(), far, s, key, nil); err != nil {
				t.Fatal(err)
			}
			packs := objects(t, far, "ns/packs/")
			m, err := s.Duplicate(t.Context(), first, snapshot.Meta{Key: second, UID: "second"})
			if err != nil {
				t.Fatal(err)
			}
			if m.Meta.UID != "second" || *m.Meta.Parent != key || m.Meta.NamespaceKey != first.Meta.NamespaceKey {
				t.Errorf("%s: it says of itself %+v", name, m.Meta)
			}
			if err := storage.Replicate(t.Context(), far, s, second, nil); err != nil {
				t.Fatal(err)
			}
			if now := objects(t, far, "ns/packs/"); len(now) != len(packs) {
				t.Errorf("%s: packs %q, then %q", name, packs, now)
			}
			left := m
			if removed == second {
				left = first
			}
			for _, at := range []*storage.Store{s, far} {
				if err := at.Remove(t.Context(), removed); err != nil {
					t.Fatal(err)
				}
				sweep(t, at)
			}
			storagetest.WantImage(t, left, image, s, far)
			for _, at := range []*storage.Store{s, far} {
				if err := at.Remove(t.Context(), left.Meta.Key); err != nil {
					t.Fatal(err)
				}
				if still := objects(t, at, "ns/packs/"); len(still) > 0 {
					t.Errorf("%s: left: %q", name, still)
				}
			}
		}
	}
}

// TestDuplicateRemoved removes the first snapshot while the second one is made: the second is whole, or is not made.
func TestDuplicateRemoved(t *testing.T) {
	for _, at := range []struct {
		op    fault.Op
		name  string
		whole bool
	}{
		{fault.Stat, "/packs/", false},
		{fault.Create, "/claims/", false},
		{fault.Create, "/manifest", true},
		{fault.Delete, "/claims/", true},
	} {
		s := storagetest.NewDir(t)
		first := storagetest.Write(t, s, key, nil, tinyImage())
		var once sync.Once
		f := faulty(t, s, func(op fault.Op, name string) fault.Fault {
			if op == at.op && strings.Contains(name, at.name) {
				once.Do(func() {
					if err := s.Remove(t.Context(), key); err != nil {
						t.Error(err)
					}
				})
			}
			return fault.Fault{}
		})
		m, err := f.Duplicate(t.Context(), first, snapshot.Meta{Key: second})
		switch {
		case at.whole && err == nil:
			sweep(t, s)
			storagetest.WantImage(t, m, tinyImage(), s)
			continue
		case at.whole || !errors.Is(err, storage.ErrNotFound):
			t.Errorf("%s %s: %v", at.op, at.name, err)
		}
		verifyAll(t, s, 0)
		if left := objects(t, s, "ns/claims/"); len(left) > 0 {
			t.Errorf("%s %s: left: %q", at.op, at.name, left)
		}
	}
}

// TestDuplicateRefused makes no second snapshot where it must not be made.
func TestDuplicateRefused(t *testing.T) {
	s := storagetest.NewDir(t)
	first := storagetest.Write(t, s, key, nil, tinyImage())
	_, public := signer(1)
	for name, tc := range map[string]struct {
		s    *storage.Store
		as   storage.Key
		kind error
	}{
		"another namespace": {s, storage.Key{Namespace: "other", Name: "second"}, storage.ErrInvalidName},
		"its own name":      {s, key, storage.ErrExists},
		"not trusted":       {at(t, s, storage.Options{Trusted: []ed25519.PublicKey{public}}), second, storage.ErrUntrusted},
		"not encrypted":     {locked(t, s, keyDir(t, "ns", hexKey(1))), second, storage.ErrKey},
	} {
		if _, err := tc.s.Duplicate(t.Context(), first, snapshot.Meta{Key: tc.as}); !errors.Is(err, tc.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	sweepAll(t, s)
	if _, err := s.Duplicate(t.Context(), first, snapshot.Meta{Key: second}); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("without its packs: %v", err)
	}
	if left := objects(t, s, "ns/snapshots/"); len(left) != 1 {
		t.Errorf("snapshots: %q", left)
	}
}
