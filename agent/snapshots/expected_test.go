package snapshots

import (
	"math/rand/v2"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// TestExpected compares what is expected with a set of chunks, in random order and with repetitions.
func TestExpected(t *testing.T) {
	const chunks = 40
	image := storagetest.Image{runsc.StateFile: {storagetest.Bytes(1, 1000)}}
	for i := range chunks {
		image[runsc.PagesFile] = append(image[runsc.PagesFile], storagetest.Bytes(uint64(i+2), ChunkSize))
	}
	m := storagetest.Write(t, storagetest.OpenStore(t, storagetest.NewDir(t).Backend()),
		snapshot.Key{Namespace: "ns", Name: "one"}, nil, image)
	s := &Reader{Reader: storage.NewReader(m)}
	if e := s.Expected(); e.Has(0, 1) || e.Content() != nil {
		t.Error("something is expected before anybody has said so")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		refs := s.Locate(runsc.StateFile, 0, 1)
		var in [chunks]bool
		for range random.IntN(chunks) {
			i := random.IntN(chunks)
			in[i] = true
			refs = append(refs, s.Locate(runsc.PagesFile, int64(i)*ChunkSize, 1)...)
		}
		s.Expect(refs)
		e := s.Expected()
		for from := range chunks {
			all := true
			for to := from + 1; to <= chunks; to++ {
				all = all && in[to-1]
				off, n := int64(from)*ChunkSize, int64(to-from)*ChunkSize
				if e.Has(off, n) != all || e.Has(off+1, n-2) != all {
					t.Fatalf("expected %v: has %d to %d: %t, want %t", in, from, to, !all, all)
				}
			}
		}
		if e.Has((chunks-1)*ChunkSize, ChunkSize+1) || e.Has(-1, 1) {
			t.Error("something is expected that is not in the file")
		}
	}
}
