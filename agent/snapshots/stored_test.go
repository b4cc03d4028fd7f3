package snapshots

import (
	"errors"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// TestStored: a snapshot in a store is listed. It is removed only if it has the given UID.
func TestStored(t *testing.T) {
	a := newRig(t, nil)
	there := "dir:" + madeStore(t)
	k := snapshot.Key{Namespace: "n", Name: "s"}
	s, err := a.stores.Get(t.Context(), there)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.NewWriter(t.Context(), k, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.File("f").Chunk([]byte("data")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context(),
		snapshot.Meta{Key: k, UID: "u", Origin: snapshot.Origin{Cluster: "c"}}); err != nil {
		t.Fatal(err)
	}
	count := func(location string) (n int) {
		t.Helper()
		err := a.catalog.Stored(t.Context(), location, func(e storage.Listed) error {
			if e.Key != k || e.Modified.IsZero() {
				t.Errorf("listed %+v", e)
			}
			n++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if m, err := a.catalog.StoredManifest(t.Context(), k, there); err != nil || m.Meta.Origin.Cluster != "c" {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := a.catalog.StoredManifest(t.Context(), k, ""); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("in another store: %v", err)
	}
	sweep := Removal{ID: ID{k, "other"}, From: FromStore, Location: there, Exact: true}
	if err := a.catalog.Remove(t.Context(), sweep); err != nil || count(there) != 1 {
		t.Errorf("one that was made anew: %v", err)
	}
	stray := storagetest.Write(t, s, snapshot.Key{Namespace: "n", Name: "stray"}, nil, storagetest.SmallImage(1))
	storagetest.Orphan(t, s, stray.Meta.Key)
	for range 2 { // the second time it is already gone
		sweep.ID.UID = "u"
		if err := a.catalog.Remove(t.Context(), sweep); err != nil || count(there) != 0 {
			t.Errorf("removed: %v", err)
		}
	}
	if !a.catalog.OwnDisk(there) || a.catalog.OwnDisk("gs://bucket") || a.catalog.OwnDisk("dir:/proc") ||
		a.catalog.OwnDisk("dir:/does/not/exist") {
		t.Error("a disk is not what it is")
	}
	if r, err := a.catalog.SweepStore(t.Context(), there); err != nil || r.Young != 1 || r.Deleted != 0 {
		t.Errorf("its pack is young: %+v, %v", r, err)
	}
}
