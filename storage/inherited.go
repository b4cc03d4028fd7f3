package storage

import (
	"hash/maphash"
	"sort"

	"diapause.dev/storage/format"
)

// inherited finds the chunks of a manifest by digest and by fingerprint, without a copy of them. It never changes after
// newInherited.
type inherited struct {
	seed    maphash.Seed
	files   []File
	starts  []int   // by file: the place of its first chunk among all chunks
	numbers []int64 // by pack of the manifest: its number for the caller, or -1 if its chunks are not wanted
	digests index
	prints  index
}

// newInherited indexes the chunks of m in those packs that have a number.
func newInherited(m *Manifest, numbers []int64) *inherited {
	k := &inherited{seed: maphash.MakeSeed(), files: m.Files, numbers: numbers}
	n, printed := 0, 0
	for _, f := range m.Files {
		k.starts = append(k.starts, n)
		n += len(f.Chunks)
		printed += len(f.Prints)
	}
	k.digests, k.prints = newIndex(n), newIndex(printed)
	for i := range m.Files {
		k.addFile(uint32(k.starts[i]), &m.Files[i])
	}
	return k
}

func (k *inherited) addFile(start uint32, f *File) {
	for i := range f.Chunks {
		c := &f.Chunks[i]
		if c.Codec == CodecZero || k.numbers[c.Pack] < 0 {
			continue
		}
		place := start + uint32(i)
		if _, ok := k.byDigest(&c.Digest); !ok {
			k.digests.insert(maphash.Bytes(k.seed, c.Digest[:]), place)
		}
		if len(f.Prints) == 0 {
			continue
		}
		if _, ok := k.byPrint(&f.Prints[i]); !ok {
			k.prints.insert(maphash.Bytes(k.seed, f.Prints[i][:]), place)
		}
	}
}

// len returns how many places there are.
func (k *inherited) len() (n int) {
	if last := len(k.files) - 1; last >= 0 {
		n = k.starts[last] + len(k.files[last].Chunks)
	}
	return n
}

// at returns the file and the index in it of the chunk at a place.
func (k *inherited) at(place uint32) (f *File, i int) {
	n := 0
	if len(k.starts) > 1 { // the last file that begins at this place or before, and is not empty
		n = sort.Search(len(k.starts), func(i int) bool { return k.starts[i] > int(place) }) - 1
	}
	return &k.files[n], int(place) - k.starts[n]
}

// chunk returns the chunk at a place, with the number of its pack.
func (k *inherited) chunk(place uint32) Chunk {
	f, i := k.at(place)
	c := f.Chunks[i]
	c.Pack = uint32(k.numbers[c.Pack])
	return c
}

func (k *inherited) byDigest(digest *[32]byte) (place uint32, ok bool) {
	return k.digests.find(maphash.Bytes(k.seed, digest[:]), func(place uint32) bool {
		f, i := k.at(place)
		return f.Chunks[i].Digest == *digest
	})
}

func (k *inherited) byPrint(print *[format.PrintSize]byte) (place uint32, ok bool) {
	return k.prints.find(maphash.Bytes(k.seed, print[:]), func(place uint32) bool {
		f, i := k.at(place)
		return f.Prints[i] == *print
	})
}
