package storage

import (
	"bytes"
	"hash/maphash"
	"slices"
	"testing"

	"diapause.dev/storage/digest"
	"diapause.dev/storage/format"
)

// twoChunks returns a manifest with a chunk of 4096 bytes in each of two packs.
func twoChunks() *Manifest {
	m := &Manifest{
		Packs: []Pack{
			{ID: PackID{1}, Size: format.PackHeaderSize + 4096},
			{ID: PackID{2}, Size: format.PackHeaderSize + 4096},
		},
		Files: []File{{Name: "pages.img", Size: 8192, Prints: [][format.PrintSize]byte{{1}, {2}}}},
	}
	for i := range uint32(2) {
		m.Files[0].Chunks = append(m.Files[0].Chunks,
			Chunk{Raw: 4096, Stored: 4096, Pack: i, Offset: format.PackHeaderSize, Codec: CodecNone, Digest: [32]byte{byte(i)}})
	}
	return m
}

func inheriting(m *Manifest) *lineage {
	l := &lineage{parent: m, seed: maphash.MakeSeed()}
	l.inherit()
	return l
}

// TestReuse: if the parent has a chunk with the same fingerprint, that chunk is taken, and no digest is computed. A
// chunk of which the parent knows only the digest is found, too.
func TestReuse(t *testing.T) {
	m := twoChunks()
	d := digest.New(m.DigestKey)
	known, digested := bytes.Repeat([]byte("a"), 4096), bytes.Repeat([]byte("b"), 4096)
	f := &m.Files[0]
	f.Prints[0] = d.Fingerprint(known) // its digest is deliberately wrong
	f.Chunks[1].Digest = d.Sum(digested)
	l := inheriting(m)
	w := &encoder{lineage: l, digests: d}
	for _, test := range []struct {
		raw  []byte
		want *Chunk // nil: unknown
	}{{known, &f.Chunks[0]}, {digested, &f.Chunks[1]}, {[]byte("something"), nil}} {
		p := placement{job: job{raw: test.raw}, chunk: Chunk{Raw: uint32(len(test.raw))}}
		found := w.reuse(&p)
		if p.print != d.Fingerprint(test.raw) {
			t.Errorf("%.9q has no fingerprint for the next snapshot", test.raw)
		}
		want := Chunk{Raw: uint32(len(test.raw)), Digest: d.Sum(test.raw)}
		if test.want != nil {
			want = *test.want
			want.Pack = uint32(slices.Index(l.packs, m.Packs[want.Pack]))
		}
		if found != (test.want != nil) || p.chunk != want {
			t.Errorf("%.9q is known: %v, as %+v, want %+v", test.raw, found, p.chunk, want)
		}
	}
	if _, ok := l.recognise(&f.Prints[0], 4095); ok {
		t.Error("recognised in another length")
	}
}

// TestRecogniseKept: a chunk in a pack that is not named again is not recognised.
func TestRecogniseKept(t *testing.T) {
	m := twoChunks()
	m.Packs[0].Size *= 10 // so that little of it is used
	l := inheriting(m)
	if _, ok := l.recognise(&m.Files[0].Prints[0], 4096); ok {
		t.Error("recognised in a pack that is left out")
	}
	if place, ok := l.recognise(&m.Files[0].Prints[1], 4096); !ok || l.known.chunk(place).Pack != 0 {
		t.Errorf("%d, %v", place, ok)
	}
}
