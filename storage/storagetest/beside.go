package storagetest

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// testRemoveBeside removes a snapshot while a child of it is written, or replicated from another store. By chance the
// removal comes between any two of their steps. A child that was made must be whole.
func testRemoveBeside(t *testing.T, b storage.Backend) {
	const rounds = 20
	parentKey, childKey := storage.Key{Namespace: "ns", Name: "parent"}, storage.Key{Namespace: "ns", Name: "child"}
	s, other, image := OpenStore(t, b), OpenStore(t, b), SmallImage(1)
	for i := range rounds {
		var child func() (*storage.Manifest, error)
		if i%2 == 0 {
			parent := Write(t, s, parentKey, nil, image)
			child = func() (*storage.Manifest, error) { return writeChild(t, s, childKey, parent, image) }
		} else {
			spool := NewDir(t)
			parent := Write(t, spool, parentKey, nil, image)
			m := Write(t, spool, childKey, parent, image)
			replicate(t, s, spool, parentKey)
			child = func() (*storage.Manifest, error) { return m, storage.Replicate(t.Context(), s, spool, childKey, nil) }
		}
		var removal sync.WaitGroup
		removal.Go(func() {
			time.Sleep(rand.N(5 * time.Millisecond))
			if err := other.Remove(t.Context(), parentKey); err != nil {
				t.Error(err)
			}
		})
		m, err := child()
		removal.Wait()
		if err == nil {
			WantImage(t, m, image, s)
			err = s.Remove(t.Context(), childKey)
		} else if i%2 == 0 { // its parent was removed too soon
			err = nil
		}
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	time.Sleep(20 * time.Millisecond) // the backend's clock may be coarse
	if _, err := s.Sweep(t.Context(), storage.SweepOptions{Grace: 1}); err != nil {
		t.Error(err)
	}
	if left := names(t, b, "ns/"); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func replicate(t *testing.T, dst, src *storage.Store, key storage.Key) {
	t.Helper()
	if err := storage.Replicate(t.Context(), dst, src, key, nil); err != nil {
		t.Fatal(err)
	}
}

func writeChild(t *testing.T, s *storage.Store, key storage.Key, parent *storage.Manifest,
	image Image,
) (*storage.Manifest, error) {
	t.Helper()
	w, err := s.NewWriter(t.Context(), key, storage.WriterOptions{Parent: parent})
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	Fill(t, w, image)
	return w.Commit(t.Context(), snapshot.Meta{})
}
