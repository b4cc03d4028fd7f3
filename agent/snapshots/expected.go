package snapshots

import (
	"cmp"
	"slices"
	"sort"

	"diapause.dev/runsc"
	"diapause.dev/storage"
)

// Expected is which parts of its memory a sandbox is expected to wait for. It never changes. A nil Expected is empty.
type Expected struct {
	content []byte         // of runsc.WorkingSetFile
	parts   []runsc.Extent // by offset; they neither touch nor overlap
	chunks  int
}

// newExpected returns that sandboxes are expected to wait for chunks, in that order. place says where a chunk is.
func newExpected(chunks []storage.ChunkRef, place func(storage.ChunkRef) (file string, off, n int64)) *Expected {
	var inOrder []runsc.Extent
	for _, c := range chunks {
		file, off, n := place(c)
		if file == runsc.PagesFile {
			inOrder = join(inOrder, runsc.Extent{Off: off, Size: n})
		}
	}
	e := &Expected{parts: disjoint(inOrder), chunks: len(chunks)}
	for _, x := range inOrder {
		e.content = runsc.AppendWorkingSet(e.content, x)
	}
	return e
}

// Content returns the content of runsc.WorkingSetFile. The caller must not change it.
func (e *Expected) Content() []byte {
	if e == nil {
		return nil
	}
	return e.content
}

// Chunks returns how many chunks are expected, of all files.
func (e *Expected) Chunks() int {
	if e == nil {
		return 0
	}
	return e.chunks
}

// Has reports whether all of a range is expected.
func (e *Expected) Has(off, n int64) bool {
	if e == nil {
		return false
	}
	i := sort.Search(len(e.parts), func(i int) bool { return e.parts[i].Off+e.parts[i].Size > off })
	return i < len(e.parts) && e.parts[i].Off <= off && off+n <= e.parts[i].Off+e.parts[i].Size
}

// join adds a part, to the last one if that ends where it begins.
func join(all []runsc.Extent, x runsc.Extent) []runsc.Extent {
	if i := len(all) - 1; i >= 0 && all[i].Off+all[i].Size == x.Off {
		all[i].Size += x.Size
		return all
	}
	return append(all, x)
}

// disjoint returns all bytes of some parts by offset.
func disjoint(parts []runsc.Extent) (all []runsc.Extent) {
	byOffset := slices.SortedFunc(slices.Values(parts), func(a, b runsc.Extent) int { return cmp.Compare(a.Off, b.Off) })
	for _, x := range byOffset {
		if i := len(all) - 1; i >= 0 {
			end := all[i].Off + all[i].Size
			x.Size = max(end, x.Off+x.Size) - max(end, x.Off)
			x.Off = max(end, x.Off)
		}
		if x.Size > 0 {
			all = join(all, x)
		}
	}
	return all
}
