package storagetest

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"diapause.dev/storage"
)

// testIdentity opens a store many times at once: a new one, and one made by an earlier version. All must see one
// identity.
func testIdentity(t *testing.T, b storage.Backend) {
	_, err := storage.Open(t.Context(), b, storage.Options{Identity: "expected"})
	wantKind(t, "open where there is no store", err, storage.ErrIdentity)
	if left := names(t, b, ""); len(left) != 0 {
		t.Fatalf("made: %q", left)
	}
	first := openTogether(t, b)
	if err := b.Delete(t.Context(), storage.Marker); err != nil {
		t.Fatal(err)
	}
	old := []byte(`{"product":"diapause","format":2}` + "\n")
	if err := b.Create(t.Context(), storage.Marker, bytes.NewReader(old), int64(len(old))); err != nil {
		t.Fatal(err)
	}
	_, err = storage.Open(t.Context(), b, storage.Options{Identity: first})
	wantKind(t, "open another store", err, storage.ErrIdentity)
	if left := names(t, b, ""); !slices.Equal(left, []string{storage.Marker}) {
		t.Errorf("made: %q", left)
	}
	second := openTogether(t, b)
	if first == second {
		t.Errorf("two stores are %s", first)
	}
	if s, err := storage.Open(t.Context(), b, storage.Options{Identity: second}); err != nil || s.Identity() != second {
		t.Errorf("open the store that is expected: %v", err)
	}
	_, err = storage.Open(t.Context(), b, storage.Options{Identity: first})
	wantKind(t, "open another store", err, storage.ErrIdentity)
	testReplaced(t, b)
}

// testReplaced makes another store of a backend that is open: nothing is replicated into it, or where there is none.
func testReplaced(t *testing.T, b storage.Backend) {
	t.Helper()
	s, err := storage.Open(t.Context(), b, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckIdentity(t.Context()); err != nil {
		t.Error(err)
	}
	src := NewDir(t)
	k := storage.Key{Namespace: "ns", Name: "late"}
	Write(t, src, k, nil, SmallImage(1))
	for _, object := range names(t, b, "") {
		if err := b.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		wantKind(t, "look at a store that was replaced", s.CheckIdentity(t.Context()), storage.ErrIdentity)
		err := storage.Replicate(t.Context(), s, src, k, nil)
		wantKind(t, "replicate into it", err, storage.ErrIdentity)
		if there, err := s.Has(t.Context(), k); there || err != nil {
			t.Errorf("the snapshot is there: %v, %v", there, err)
		}
		openTogether(t, b)
	}
}

// openTogether opens a store several times at once and returns its identity.
func openTogether(t *testing.T, b storage.Backend) string {
	t.Helper()
	var group sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		group.Go(func() {
			s, err := storage.Open(t.Context(), b, storage.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = s.Identity()
		})
	}
	group.Wait()
	if slices.Sort(ids); ids[0] == "" || ids[0] != ids[len(ids)-1] {
		t.Fatalf("identities: %q", ids)
	}
	return ids[0]
}
