package capture

import (
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

const k = 1 << 10

func rangeOf(start, end uint64) memmap.FileRange {
	return memmap.FileRange{Start: start * k, End: end * k}
}

func lengths(b *Batch) (all []int64) {
	for _, r := range b.Runs {
		all = append(all, r.Len/k)
	}
	return all
}

func TestRuns(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ranges []memmap.FileRange
		want   []int64
	}{
		{"none", nil, nil},
		{"aligned", []memmap.FileRange{rangeOf(0, 128)}, []int64{64, 64}},
		{"begins inside a window", []memmap.FileRange{rangeOf(60, 72)}, []int64{4, 8}},
		{"holes inside a window", []memmap.FileRange{rangeOf(0, 4), rangeOf(8, 12), rangeOf(64, 68)}, []int64{8, 4}},
		{"neighbours", []memmap.FileRange{rangeOf(0, 4), rangeOf(4, 12)}, []int64{12}},
		{"the same window twice", []memmap.FileRange{rangeOf(0, 64), rangeOf(0, 4)}, []int64{64, 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := batchOf(64*k, 0, tt.ranges...)
			if got := lengths(b); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			rest := b.Ranges
			for _, r := range b.Runs {
				var run []memmap.FileRange
				run, rest = split(rest, r.Len)
				var n uint64
				for _, piece := range run {
					n += piece.Length()
				}
				if n != uint64(r.Len) {
					t.Errorf("ranges %v of a run of %d bytes", run, r.Len)
				}
			}
			if len(rest) > 0 {
				t.Errorf("ranges %v are of no run", rest)
			}
		})
	}
}

// TestRunsKeepTheirPlace shows that pages appearing before a run do not move its bounds.
func TestRunsKeepTheirPlace(t *testing.T) {
	far := rangeOf(640, 768)
	before, after := lengths(batchOf(64*k, 0, far)), lengths(batchOf(64*k, 0, rangeOf(4, 8), far))
	if !slices.Equal(after, append([]int64{4}, before...)) {
		t.Errorf("got %v, without the first %v", after, before)
	}
}

// TestBatches: whatever the writes are, a run is never in two batches, and batches follow each other.
func TestBatches(t *testing.T) {
	var got []*Batch
	f := &pagesFile{chunk: 64 * k, work: make(chan *Batch, 100)}
	for at := uint64(0); at < 3<<10; at += 20 {
		f.add(int(at/2000), rangeOf(at, at+4))
	}
	f.hand()
	close(f.work)
	var off int64
	for b := range f.work {
		if b.Off != off || b.Size == 0 {
			t.Errorf("batch of %d bytes at %d, want it at %d", b.Size, b.Off, off)
		}
		off += b.Size
		if n := len(got); n > 0 && got[n-1].File == b.File && got[n-1].extends(b.Ranges[0], f.chunk) {
			t.Errorf("the batch at %d begins in the middle of a run", b.Off)
		}
		got = append(got, b)
	}
	if off != int64(f.size) || len(got) < 2 {
		t.Errorf("%d batches of %d bytes, %d were added", len(got), off, f.size)
	}
}
