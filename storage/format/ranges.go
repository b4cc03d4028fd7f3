package format

import (
	"cmp"
	"slices"
)

// Stats sums up a manifest.
type Stats struct {
	RawBytes    int64 // of all files
	StoredBytes int64 // of the packs' ranges that the chunks name, each range once
	Chunks      int
	ZeroChunks  int
	Packs       int
}

// Stats sums the manifest up. It walks the whole table.
func (m *Manifest) Stats() Stats {
	s := Stats{Packs: len(m.Packs)}
	for _, f := range m.Files {
		s.RawBytes += f.Size
		s.Chunks += len(f.Chunks)
		for i := range f.Chunks {
			if f.Chunks[i].Codec == CodecZero {
				s.ZeroChunks++
			}
		}
	}
	_, s.StoredBytes = m.UsedBytes()
	return s
}

// UsedBytes returns how many bytes of each pack a manifest names, each range once, and their sum.
func (m *Manifest) UsedBytes() (used []int64, total int64) {
	used = make([]int64, len(m.Packs))
	for _, r := range ranges(m.Files) {
		used[r.place>>32] += int64(r.stored)
		total += int64(r.stored)
	}
	return used, total
}

// stretch is the stored range of a chunk: its pack and its offset there in one number, and its length.
type stretch struct {
	place  uint64
	stored uint32
}

// ranges returns where chunks are stored, each range once.
func ranges(files []File) []stretch {
	all := make([]stretch, 0, countChunks(files))
	for _, f := range files {
		for i := range f.Chunks {
			if c := &f.Chunks[i]; c.Codec != CodecZero {
				all = append(all, stretch{uint64(c.Pack)<<32 | uint64(c.Offset), c.Stored})
			}
		}
	}
	slices.SortFunc(all, func(a, b stretch) int { return cmp.Compare(a.place, b.place) })
	return slices.CompactFunc(all, func(a, b stretch) bool { return a.place == b.place })
}
