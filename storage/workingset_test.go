package storage_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

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

// TestPrefetch: what was prefetched is not read again, and no more is prefetched than fits.
func TestPrefetch(t *testing.T) {
	s := storagetest.NewDir(t)
	image := storagetest.Image{"pages.img": nil}
	for i := range 40 {
		image["pages.img"] = append(image["pages.img"], storagetest.Bytes(uint64(i), 10000))
	}
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
