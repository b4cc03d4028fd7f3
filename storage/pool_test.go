package storage_test

import (
	"bytes"
	"sync"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// TestPool: readers of one pool keep no more decoded chunks than it may have, and what they read is right. A closed one
// keeps nothing, even if it is read from later.
func TestPool(t *testing.T) {
	const size, readers = 100_000, 4
	s := storagetest.NewDir(t)
	image := fortyChunks(10_000)
	m := storagetest.Write(t, s, key, nil, image)
	pool := storage.NewPool(size)
	want := bytes.Join(image["pages.img"], nil)
	var all [readers]*storage.Reader
	var g sync.WaitGroup
	for i := range all {
		r := storage.ReaderOptions{Pool: pool}.NewReader(m, s)
		all[i] = r
		g.Go(func() {
			if _, err := r.PrefetchChunks(t.Context(), r.Locate("pages.img", 0, m.Files[0].Size)); err != nil {
				t.Error(err)
			}
			for off := 5; off+1000 < len(want); off += 7_000 {
				got := make([]byte, 1000)
				if err := r.ReadAt(t.Context(), "pages.img", int64(off), [][]byte{got}); err != nil ||
					!bytes.Equal(got, want[off:off+len(got)]) {
					t.Errorf("read at %d: %v", off, err)
				}
				if n := pool.Bytes(); n > size {
					t.Errorf("%d bytes are kept, at most %d allowed", n, size)
				}
			}
		})
	}
	g.Wait()
	if pool.Bytes() == 0 {
		t.Error("nothing is kept")
	}
	for _, r := range all {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := r.ReadAt(t.Context(), "pages.img", 5, [][]byte{make([]byte, 1000)}); err != nil {
			t.Error(err)
		}
	}
	if n := pool.Bytes(); n != 0 {
		t.Errorf("%d bytes are kept by closed readers", n)
	}
}
