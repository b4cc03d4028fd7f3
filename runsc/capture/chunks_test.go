package capture

import (
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

func TestChunks(t *testing.T) {
	const k = 1 << 10
	ext := func(file int, start, end uint64) Extent {
		return Extent{file, memmap.FileRange{Start: start * k, End: end * k}}
	}
	for _, tt := range []struct {
		name    string
		extents []Extent
		want    []Run
	}{
		{"none", nil, nil},
		{"aligned", []Extent{ext(0, 0, 128)}, []Run{{0, 64 * k}, {64 * k, 64 * k}}},
		{"begins inside a window", []Extent{ext(0, 60, 70)}, []Run{{0, 4 * k}, {4 * k, 6 * k}}},
		{"holes inside a window", []Extent{ext(0, 0, 4), ext(0, 8, 12), ext(0, 64, 68)}, []Run{{0, 8 * k}, {8 * k, 4 * k}}},
		{"another file", []Extent{ext(0, 0, 4), ext(1, 4, 8)}, []Run{{0, 4 * k}, {4 * k, 4 * k}}},
		{"the same window twice", []Extent{ext(0, 0, 64), ext(0, 0, 4)}, []Run{{0, 64 * k}, {64 * k, 4 * k}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			im := &Image{Extents: tt.extents}
			if got := slices.Collect(im.Chunks(64 * k)); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestChunksKeepTheirPlace shows that pages appearing before a chunk do not move its bounds.
func TestChunksKeepTheirPlace(t *testing.T) {
	const size = 64 << 10
	far := Extent{0, memmap.FileRange{Start: 10 * size, End: 12 * size}}
	before := slices.Collect((&Image{Extents: []Extent{far}}).Chunks(size))
	more := Extent{0, memmap.FileRange{Start: 4096, End: 8192}}
	after := slices.Collect((&Image{Extents: []Extent{more, far}}).Chunks(size))
	if len(after) != len(before)+1 {
		t.Fatalf("%d chunks, want %d", len(after), len(before)+1)
	}
	for i, r := range before {
		if after[i+1].Len != r.Len {
			t.Errorf("chunk %d has %d bytes, had %d", i, after[i+1].Len, r.Len)
		}
	}
}
