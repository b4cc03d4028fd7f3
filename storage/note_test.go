package storage_test

import (
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/dir"
)

// TestNote: each cluster has a note of its own, which no namespace and no sweep takes for something else.
func TestNote(t *testing.T) {
	b, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(t.Context(), b, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Note(t.Context(), "a"); got != nil || err != nil {
		t.Errorf("before: %q, %v", got, err)
	}
	for _, x := range []string{"1", "2"} {
		if err := s.SetNote(t.Context(), "a", []byte(x)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetNote(t.Context(), "b", []byte("other")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sweep(t.Context(), storage.SweepOptions{Grace: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.List(t.Context(), "", func(e storage.Listed) error {
		t.Errorf("%s is listed", e.Key)
		return nil
	}); err != nil {
		t.Error(err)
	}
	if got, err := s.Note(t.Context(), "a"); string(got) != "2" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.SetNote(t.Context(), "../a", nil); err == nil {
		t.Error("a name outside the store was taken")
	}
}
