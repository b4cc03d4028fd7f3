package capture

import (
	"iter"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// Run is a run of bytes of pages.img: a chunk. Its pages lie in one window of their memory file, so a page stays in the
// same chunk from one checkpoint to the next, even if its place in pages.img changes.
type Run struct {
	Len int64
	At  int64 // where its bytes are that were copied; it means something to the Pages that has taken them

	window      int     // of the baseline, if any page is kept
	pages, kept pageSet // all pages, and those that are stored already
}

// Batch is runs of pages of one memory file that follow each other in pages.img.
type Batch struct {
	File   int
	Off    int64 // of the first byte in pages.img
	Size   int64 // in bytes
	Runs   []Run
	Ranges []memmap.FileRange // of all runs, in order. None is of two runs
}

// pieces cuts a range where it crosses a multiple of size bytes.
func pieces(r memmap.FileRange, size uint64) iter.Seq[memmap.FileRange] {
	return func(yield func(memmap.FileRange) bool) {
		for r.Length() > 0 {
			n := min(r.Length(), size-r.Start%size)
			if !yield(memmap.FileRange{Start: r.Start, End: r.Start + n}) {
				return
			}
			r.Start += n
		}
	}
}

// extends reports whether a piece belongs to the batch's last run: they lie in the same window of size bytes, and
// are not longer.
func (b *Batch) extends(piece memmap.FileRange, size uint64) bool {
	if len(b.Runs) == 0 {
		return false
	}
	before := b.Ranges[len(b.Ranges)-1]
	return before.Start/size == piece.Start/size && uint64(b.Runs[len(b.Runs)-1].Len)+piece.Length() <= size
}

// add adds a piece, to the last run or as a new one.
func (b *Batch) add(piece memmap.FileRange, size uint64) {
	n := int64(piece.Length())
	b.Size += n
	if !b.extends(piece, size) {
		b.Runs, b.Ranges = append(b.Runs, Run{Len: n}), append(b.Ranges, piece)
		return
	}
	b.Runs[len(b.Runs)-1].Len += n
	if last := &b.Ranges[len(b.Ranges)-1]; last.End == piece.Start {
		last.End = piece.End
		return
	}
	b.Ranges = append(b.Ranges, piece)
}

// split returns the ranges of the first run, which has n bytes, and the others.
func split(ranges []memmap.FileRange, n int64) (run, rest []memmap.FileRange) {
	for i, r := range ranges {
		if n -= int64(r.Length()); n <= 0 {
			return ranges[:i+1], ranges[i+1:]
		}
	}
	return ranges, nil
}
