package storage_test

import (
	"strings"
	"sync"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// Bounds of servers that keep objects as files, in bytes: of a file's name, and of an object's key.
const (
	fileNameBound = 255
	keyBound      = 1024
)

// TestLayoutFitsFiles makes objects of each kind for the longest names that are allowed. No object's name may go on
// below another object, as a file cannot be a directory, too. None may be too long as a file's name, or as a key with
// the longest path of a PodSnapshotStorageConfig before it.
func TestLayoutFitsFiles(t *testing.T) {
	const longestPath = 512
	var mu sync.Mutex
	made := map[string]bool{}
	s := faulty(t, storagetest.NewDir(t), func(op fault.Op, name string) fault.Fault {
		mu.Lock()
		defer mu.Unlock()
		if op == fault.Create || op == fault.Replace {
			made[name] = true
		}
		return fault.Fault{}
	})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := storage.Key{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("s", 253)} // Kubernetes' bounds
	m := storagetest.Write(t, s, key, nil, tinyImage())
	h, err := s.Hold(ctx, m)
	must(err)
	must(s.MarkDamaged(ctx, key, "tried"))
	must(s.SetNote(ctx, strings.Repeat("c", 36)+".alive", []byte("note")))
	must(h.Release(ctx))
	must(s.Remove(ctx, key))
	for name := range made {
		if len(name)+longestPath > keyBound {
			t.Errorf("%s has %d bytes", name, len(name))
		}
		for part := range strings.SplitSeq(name, "/") {
			if len(part) > fileNameBound {
				t.Errorf("%s: a component has %d bytes", name, len(part))
			}
		}
		for i, c := range name {
			if c == '/' && made[name[:i]] {
				t.Errorf("%s is below the object %s", name, name[:i])
			}
		}
	}
	for _, kind := range []string{"/packs/", "/claims/", "/sweeps/", "/manifest", "/damaged"} {
		found := false
		for name := range made {
			found = found || strings.Contains(name, kind)
		}
		if !found {
			t.Errorf("no object %q was made", kind)
		}
	}
}
