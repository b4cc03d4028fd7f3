package storage_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// anyKey is a keyring with one key for all namespaces.
type anyKey struct{}

// Keys implements storage.Keyring.
func (anyKey) Keys(string) (storage.Keys, error) {
	return storage.Keys{Current: &storage.Secret{1, 2, 3}}, nil
}

// encrypted opens a store over b with anyKey.
func encrypted(t *testing.T, b storage.Backend) *storage.Store {
	t.Helper()
	s, err := storage.Open(t.Context(), b, storage.Options{Keyring: anyKey{}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReplicateDamagedKey: a data key that is damaged on its way is not written. One that is damaged in the target is
// replaced.
func TestReplicateDamagedKey(t *testing.T) {
	var flip atomic.Bool
	src := encrypted(t, fault.New(storagetest.NewDir(t).Backend(), func(op fault.Op, name string) fault.Fault {
		return fault.Fault{Flip: op == fault.ReadAt && strings.Contains(name, "/keys/") && flip.Load()}
	}))
	storagetest.Write(t, src, key, nil, tinyImage())
	dst := encrypted(t, storagetest.NewDir(t).Backend())
	flip.Store(true)
	if err := storage.Replicate(t.Context(), dst, src, key, nil); !errors.Is(err, storage.ErrCorrupt) {
		t.Fatalf("with a damaged data key: %v", err)
	}
	if left := objects(t, dst, "ns/"); len(left) != 0 {
		t.Errorf("left in the target: %q", left)
	}
	flip.Store(false)
	if err := storage.Replicate(t.Context(), dst, src, key, nil); err != nil {
		t.Fatal(err)
	}
	path := objectPath(dst, objects(t, dst, "ns/keys/")[0])
	bad := content(t, path)
	bad[len(bad)-1] ^= 1
	overwrite(t, path, bad)
	if err := storage.Replicate(t.Context(), dst, src, key, nil); err != nil {
		t.Fatal(err)
	}
	verifyAll(t, encrypted(t, dst.Backend()), 1)
}
