package storage_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

func TestWorkingSet(t *testing.T) {
	plain := storagetest.NewDir(t)
	for name, s := range map[string]*storage.Store{
		"plain":     plain,
		"encrypted": locked(t, plain, keyDir(t, "default", hexKey(1))),
	} {
		k := storage.Key{Namespace: name, Name: "one"}
		m := storagetest.Write(t, s, k, nil, storagetest.SmallImage(1))
		if _, err := s.WorkingSet(t.Context(), m); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: none yet: %v", name, err)
		}
		r := storage.NewReader(m, s)
		want := append(r.Locate("pages.img", 5000, 4000), r.Locate("checkpoint.img", 0, 1)...)
		if len(want) != 3 {
			t.Fatalf("%v", want)
		}
		for _, set := range [][]storage.ChunkRef{want, nil, want} {
			if err := s.PutWorkingSet(t.Context(), m, set); err != nil {
				t.Fatal(err)
			}
			got, err := s.WorkingSet(t.Context(), m)
			if err != nil || !slices.Equal(got, set) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
		if err := s.PutWorkingSet(t.Context(), m, []storage.ChunkRef{{File: 0, Index: 99}}); err == nil {
			t.Errorf("%s: a chunk that does not exist was taken", name)
		}
		damageSet(t, s, m)
		if err := s.Remove(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		again := storagetest.Write(t, s, k, nil, storagetest.SmallImage(2))
		if err := s.PutWorkingSet(t.Context(), m, want); err != nil { // late
			t.Fatal(err)
		}
		if _, err := s.WorkingSet(t.Context(), again); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: of another snapshot: %v", name, err)
		}
	}
}

func damageSet(t *testing.T, s *storage.Store, m *storage.Manifest) {
	t.Helper()
	path := objectPath(s, m.Meta.Namespace+"/snapshots/one/workingset")
	good := content(t, path)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		overwrite(t, path, bad)
		if _, err := s.WorkingSet(t.Context(), m); !errors.Is(err, storage.ErrCorrupt) &&
			!errors.Is(err, storage.ErrNotFound) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	overwrite(t, path, good)
}

// fortyChunks returns an image of chunks of that size.
func fortyChunks(size int) storagetest.Image {
	image := storagetest.Image{"pages.img": nil}
	for i := range 40 {
		image["pages.img"] = append(image["pages.img"], storagetest.Bytes(uint64(i), size))
	}
	return image
}

// TestPrefetch: what was prefetched is not read again, and what does not fit is not prefetched.
func TestPrefetch(t *testing.T) {
	s := storagetest.NewDir(t)
	image := fortyChunks(10000)
	m := storagetest.Write(t, s, key, nil, image)
	c := &counting{Backend: s.Backend()}
	r := storage.ReaderOptions{CacheBytes: 400000}.NewReader(m, storagetest.OpenStore(t, c))
	if err := r.Prefetch(t.Context(), "pages.img", 5, 10000); err != nil {
		t.Fatal(err)
	}
	n, err := r.PrefetchChunks(t.Context(), r.Locate("pages.img", 0, m.Files[0].Size))
	if err != nil || n != 30 {
		t.Fatalf("%d chunks, %v", n, err)
	}
	if c.reads.Load() != 2 {
		t.Errorf("%d reads", c.reads.Load())
	}
	got := make([]byte, 300000)
	if err := r.ReadAt(t.Context(), "pages.img", 0, [][]byte{got}); err != nil ||
		!bytes.Equal(got, bytes.Join(image["pages.img"], nil)[:len(got)]) {
		t.Errorf("read: %v", err)
	}
	if c.reads.Load() != 2 {
		t.Errorf("%d reads after all was prefetched", c.reads.Load())
	}
	for _, bad := range [][2]int64{{-1, 1}, {0, 1 << 40}, {1 << 40, 0}} {
		if err := r.Prefetch(t.Context(), "pages.img", bad[0], bad[1]); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

// gated is a Backend whose reads wait until it is opened.
type gated struct {
	storage.Backend
	open chan struct{}

	mu    sync.Mutex
	begun []int64 // the reads' offsets
}

func (b *gated) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	b.note(off)
	<-b.open
	return b.Backend.ReadAt(ctx, name, p, off)
}

func (b *gated) note(off int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = append(b.begun, off)
}

// TestPrefetchOrder: what a working set begins with is read first.
func TestPrefetchOrder(t *testing.T) {
	s := storagetest.NewDir(t)
	image := fortyChunks(storage.MaxChunk / 2)
	m := storagetest.Write(t, s, key, nil, image)
	var set []storage.ChunkRef
	for i := 38; i >= 0; i -= 4 { // too far apart to be read at once
		set = append(set, storage.ChunkRef{Index: uint32(i)})
	}
	synctest.Test(t, func(t *testing.T) {
		b := &gated{Backend: s.Backend(), open: make(chan struct{})}
		r := storage.NewReader(m, storagetest.OpenStore(t, b))
		go func() {
			synctest.Wait() // until as many reads have begun as may be under way at a time
			first := len(b.begun)
			if first == 0 || first == len(set) {
				t.Errorf("%d of %d reads have begun", first, len(set))
			}
			for _, off := range b.begun {
				if !slices.ContainsFunc(set[:first], func(c storage.ChunkRef) bool {
					return int64(m.Files[0].Chunks[c.Index].Offset) == off
				}) {
					t.Errorf("a read at %d is among the first %d", off, first)
				}
			}
			close(b.open)
		}()
		if n, err := r.PrefetchChunks(t.Context(), set); err != nil || n != len(set) {
			t.Fatalf("%d chunks, %v", n, err)
		}
	})
}

// TestGuess: before any pack is looked for where it is far away, each is read from the store that has it, and many
// chunks at once.
func TestGuess(t *testing.T) {
	far := storagetest.NewDir(t)
	image := fortyChunks(10000)
	parent := storagetest.Write(t, far, key, nil, image)
	for i := range 20 {
		image["pages.img"][i] = storagetest.Bytes(uint64(100+i), 10000)
	}
	m := storagetest.Write(t, far, storage.Key{Namespace: key.Namespace, Name: "child"}, parent, image)
	near := storagetest.NewDir(t)
	if err := storage.Replicate(t.Context(), near, far, key, nil); err != nil {
		t.Fatal(err)
	}
	nearby, away := &counting{Backend: near.Backend()}, &counting{Backend: far.Backend()}
	r := storage.NewReader(m, storagetest.OpenStore(t, nearby), storagetest.OpenStore(t, away))
	r.Guess(t.Context())
	got := make([]byte, m.Files[0].Size)
	if err := r.ReadAt(t.Context(), "pages.img", 0, [][]byte{got}); err != nil ||
		!bytes.Equal(got, bytes.Join(image["pages.img"], nil)) {
		t.Errorf("read: %v", err)
	}
	if nearby.reads.Load() != 1 || away.reads.Load() != 1 {
		t.Errorf("%d reads here and %d there, want one each", nearby.reads.Load(), away.reads.Load())
	}
	storage.NewReader(m, near).Guess(t.Context()) // there is nothing to guess
}
