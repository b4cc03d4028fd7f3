package workingset

import (
	"slices"
	"testing"

	"diapause.dev/storage"
)

// TestMerge: what was waited for now comes first, and what earlier restores waited for stays, for a while.
func TestMerge(t *testing.T) {
	refs := func(index ...uint32) (list []storage.ChunkRef) {
		for _, i := range index {
			list = append(list, storage.ChunkRef{Index: i})
		}
		return list
	}
	tests := map[string]struct {
		known, now, want []storage.ChunkRef
		changed          bool
	}{
		"first":              {nil, refs(3, 1), refs(3, 1), true},
		"all known":          {refs(1, 2, 3), refs(3), refs(3, 1, 2), false},
		"one more":           {refs(1, 2, 3), refs(3, 4), refs(3, 4, 1, 2), true},
		"no longer than was": {refs(1, 2, 3), refs(4), refs(4, 1, 2), true},
		"as many old as new": {refs(1), refs(2, 3), refs(2, 3, 1), true},
		"nothing":            {refs(1), nil, refs(1), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, changed := merge(test.known, test.now)
			if !slices.Equal(got, test.want) || changed != test.changed {
				t.Errorf("got %v, changed %t, want %v, %t", got, changed, test.want, test.changed)
			}
		})
	}
	var many []storage.ChunkRef
	for i := range uint32(Max) {
		many = append(many, storage.ChunkRef{Index: i})
	}
	if got, _ := merge(many, refs(Max, Max+1)); len(got) != Max {
		t.Errorf("merged into %d chunks, want %d", len(got), Max)
	}
}
