package storage_test

import (
	"errors"
	"os"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

func TestParseSubset(t *testing.T) {
	for text, want := range map[string]storage.Subset{
		"1/1": {Part: 1, Of: 1}, "2/5": {Part: 2, Of: 5}, "5/5": {Part: 5, Of: 5},
		"": {}, "0/0": {}, "0/5": {}, "6/5": {}, "-1/5": {}, "1/-5": {}, "1": {}, "1/": {}, "/1": {}, "1/2/3": {}, "1/2x": {},
		"x1/2": {}, "1/99999999999999999999": {},
	} {
		got, err := storage.ParseSubset(text)
		if got != want || (err == nil) != (want != storage.Subset{}) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestVerifySubset: each damaged pack is found by exactly one of the parts.
func TestVerifySubset(t *testing.T) {
	s := storagetest.NewDir(t)
	var line []*storage.Manifest // each has a pack of its own
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		line = append(line, storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: name}, nil, tinyImage()))
	}
	for _, name := range objects(t, s, "ns/packs/") {
		path := objectPath(s, name)
		data := content(t, path)
		data[len(data)/2] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const parts = 3
	for _, m := range line {
		found := 0
		for part := range parts {
			err := s.Verify(t.Context(), m,
				storage.VerifyOptions{ReadData: true, Subset: storage.Subset{Part: part + 1, Of: parts}})
			if errors.Is(err, storage.ErrCorrupt) {
				found++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if found != len(m.Packs) {
			t.Errorf("%s: %d damaged packs, found %d times", m.Meta.Key, len(m.Packs), found)
		}
	}
	err := s.Verify(t.Context(), line[0], storage.VerifyOptions{ReadData: true, Subset: storage.Subset{Part: 4, Of: 3}})
	if err == nil {
		t.Error("part 4 of 3 was verified")
	}
}
