package storage_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/fault"
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

// TestHostileReadsAtOnce: many snapshots of one namespace are read at a time, and their store does not answer. What is
// being read is bounded over all of them, and a snapshot of another namespace is read meanwhile. None of it is left
// after the reads have ended.
func TestHostileReadsAtOnce(t *testing.T) {
	const size, readers = 32 << 20, 40
	s := storagetest.NewDir(t)
	image := fortyChunks(storage.MaxChunk / 4)
	theirs, ours := storage.Key{Namespace: "theirs", Name: "one"}, storage.Key{Namespace: "ours", Name: "one"}
	slow := storagetest.Write(t, s, theirs, nil, image)
	m := storagetest.Write(t, s, ours, nil, image)
	stalled, asked := make(chan struct{}), make(chan struct{}, 1000)
	hung := faulty(t, s, func(op fault.Op, name string) (f fault.Fault) {
		if op == fault.ReadAt && strings.HasPrefix(name, "theirs/packs/") {
			asked <- struct{}{}
			f.Stall = stalled
		}
		return f
	})
	pool := storage.NewPool(size)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var g sync.WaitGroup
	for range readers {
		r := storage.ReaderOptions{Pool: pool}.NewReader(slow, hung)
		g.Go(func() {
			defer r.Close()
			if _, err := r.PrefetchChunks(ctx, r.Locate("pages.img", 0, slow.Files[0].Size)); err == nil {
				t.Error("it reads from a store that hangs")
			}
		})
	}
	r := storage.ReaderOptions{Pool: pool}.NewReader(m, hung)
	defer r.Close()
	for i := range size / 2 >> 20 { // half of what may be read, in runs of 1 MiB
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatalf("only %d reads have begun", i)
		}
		if n := pool.Reading(); n > size/2 {
			t.Fatalf("%d bytes are being read after %d reads, at most %d allowed", n, i, size/2)
		}
	}
	got := make([]byte, m.Files[0].Size)
	if err := r.ReadAt(t.Context(), "pages.img", 0, [][]byte{got}); err != nil ||
		!bytes.Equal(got, bytes.Join(image["pages.img"], nil)) {
		t.Errorf("another namespace: %v", err)
	}
	if n := pool.Reading(); n != size/2 || len(asked) > 0 {
		t.Errorf("%d bytes are being read, want %d; %d reads more", n, size/2, len(asked))
	}
	cancel()
	g.Wait()
	if n := pool.Reading() + pool.Bytes(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
