package snapshots

import (
	"errors"
	"slices"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// TestReadersShare: restores of one snapshot share its reader. The last release closes it.
func TestReadersShare(t *testing.T) {
	a := newRig(t, nil)
	k := snapshot.Key{Namespace: "n", Name: "s"}
	put(t, a.stores.spool, k)
	rs := a.readers
	if rs.Using(k) {
		t.Error("nobody has opened it")
	}
	one, err := rs.Open(t.Context(), ID{Key: k}, "")
	if err != nil {
		t.Fatal(err)
	}
	two, err := rs.Open(t.Context(), one.ID, "")
	if err != nil || two != one {
		t.Fatalf("another reader: %v", err)
	}
	rs.Retain(one)
	calls := 0
	for range 2 {
		one.PrefetchOnce(func() { calls++ })
	}
	if calls != 1 || !one.OnNode {
		t.Errorf("read ahead %d times, on the node: %v", calls, one.OnNode)
	}
	for range 2 {
		if rs.Release(one); !rs.Using(k) || isClosed(one) {
			t.Error("closed while it is used")
		}
	}
	if rs.Release(one); rs.Using(k) || !isClosed(one) {
		t.Error("not closed by the last one")
	}
	again, err := rs.Open(t.Context(), ID{Key: k}, "")
	if err != nil || again == one {
		t.Errorf("a reader that is closed is shared: %v", err)
	}
	rs.Release(again)
}

func isClosed(s *Reader) bool {
	select {
	case <-s.released:
		return true
	default:
		return false
	}
}

// TestReadersRefuse: a restore reads the snapshot that was chosen, or fails.
func TestReadersRefuse(t *testing.T) {
	a := newRig(t, nil)
	k := snapshot.Key{Namespace: "n", Name: "s"}
	put(t, a.stores.spool, k)
	for _, c := range []struct {
		what     string
		id       ID
		location string
		want     error
	}{
		{"another", ID{Key: k, UID: "another"}, "", errkind.ErrReplaced},
		{"not there", ID{Key: snapshot.Key{Namespace: "n", Name: "other"}}, "", storage.ErrNotFound},
		{"no store", ID{Key: k}, "tape:1", errkind.ErrInvalid},
		// This case is the last one: from here on restores without a location ask this store, too.
		{"store's away", ID{Key: snapshot.Key{Namespace: "n", Name: "other"}}, "dir:/dev/null/away", storage.ErrUnavailable},
	} {
		if _, err := a.readers.Open(t.Context(), c.id, c.location); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// TestReadersWorkingSet: a reader of a snapshot that is not on the node has the working set that the store has.
func TestReadersWorkingSet(t *testing.T) {
	a := newRig(t, nil)
	far, err := a.stores.own.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := snapshot.Key{Namespace: "n", Name: "s"}
	m := storagetest.Write(t, far, k, nil, storagetest.Image{"pages.img": {storagetest.Bytes(1, 1000)}})
	read := func() ([]storage.ChunkRef, error) {
		t.Helper()
		s, err := a.readers.Open(t.Context(), ID{Key: k}, "")
		if err != nil {
			t.Fatal(err)
		}
		defer a.readers.Release(s)
		return s.WorkingSet(t.Context())
	}
	if _, err := read(); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("there is none: %v", err)
	}
	want := []storage.ChunkRef{{File: 0, Index: 0}}
	if err := far.PutWorkingSet(t.Context(), m, want); err != nil {
		t.Fatal(err)
	}
	if got, err := read(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if err := far.Backend().Replace(t.Context(), "n/snapshots/s/workingset", []byte("something else")); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("it is damaged: %v", err)
	}
}
