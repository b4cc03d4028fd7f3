package storage_test

import (
	"errors"
	"testing"

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

// TestNoDeletion: with credentials that allow no deletion, snapshots are stored and read. They are not removed, and
// whoever tries learns why. docs/kubernetes.md recommends such credentials.
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
	storagetest.WantImage(t, m, image, s)
	for what, err := range map[string]error{
		"end a hold": hold.Release(t.Context()),
		"remove":     s.Remove(t.Context(), key),
	} {
		if !errors.Is(err, storage.ErrDenied) {
			t.Errorf("%s: %v, want %v", what, err, storage.ErrDenied)
		}
	}
	verifyAll(t, bucket, 1)
}
