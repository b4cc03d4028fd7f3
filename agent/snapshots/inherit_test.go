package snapshots

import (
	"errors"
	"slices"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// TestInheritedWorkingSet: a snapshot that nobody has restored has that part of its parent's working set that has not
// changed, wherever it lies now.
func TestInheritedWorkingSet(t *testing.T) {
	rs := newRig(t, nil).readers
	far := rs.stores.Spool() // which could as well be another store that has both
	page := func(seed uint64) []byte { return storagetest.Bytes(seed, ChunkSize) }
	image := func(pages ...[]byte) storagetest.Image {
		return storagetest.Image{runsc.StateFile: {storagetest.Bytes(100, 1000)}, runsc.PagesFile: pages}
	}
	one, two := snapshot.Key{Namespace: "ns", Name: "one"}, snapshot.Key{Namespace: "ns", Name: "two"}
	zeros := make([]byte, ChunkSize)
	parent := storagetest.Write(t, far, one, nil, image(page(0), page(1), page(2), zeros, page(3)))
	child := storagetest.Write(t, far, two, parent, image(page(9), page(3), page(0), zeros, page(1), page(1)))
	s := &Reader{Reader: storage.NewReader(child), ID: ID{Key: two}, Manifest: child, OnNode: true, Far: far}
	if _, err := rs.WorkingSet(t.Context(), s); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("without a working set of the parent: %v", err)
	}
	reader := storage.NewReader(parent)
	set := reader.Locate(runsc.StateFile, 0, 1)
	for _, i := range []int64{4, 2, 3, 1} {
		set = append(set, reader.Locate(runsc.PagesFile, i*ChunkSize, 1)...)
	}
	if err := far.PutWorkingSet(t.Context(), parent, set); err != nil {
		t.Fatal(err)
	}
	got, err := rs.WorkingSet(t.Context(), s)
	want := slices.Concat(s.Locate(runsc.PagesFile, ChunkSize, 1), s.Locate(runsc.PagesFile, 4*ChunkSize, 1))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	s.OnNode = false
	if _, err := rs.WorkingSet(t.Context(), s); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("of a snapshot that is far away: %v", err)
	}
	s.OnNode = true
	if err := far.PutWorkingSet(t.Context(), child, set[:1]); err != nil {
		t.Fatal(err)
	}
	if got, err := rs.WorkingSet(t.Context(), s); err != nil || !slices.Equal(got, set[:1]) {
		t.Errorf("with a working set of its own: %v, %v", got, err)
	}
}
