package storagetest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
)

// OpenStore opens a store over b.
func OpenStore(t testing.TB, b storage.Backend) *storage.Store {
	t.Helper()
	s, err := storage.Open(t.Context(), b, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// testProbe probes a store, an empty backend, and a store with a context that has ended.
func testProbe(t *testing.T, b storage.Backend) {
	s := OpenStore(t, b)
	wantKind(t, "probe a store", s.Probe(t.Context()), nil)
	if err := b.Delete(t.Context(), storage.Marker); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "probe an empty store", s.Probe(t.Context()), nil)
	if left := names(t, b, ""); len(left) != 0 {
		t.Errorf("made: %q", left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantKind(t, "probe with a context that has ended", s.Probe(ctx), context.Canceled)
}

// NewDir returns a store over an empty directory that is removed with the test.
func NewDir(t testing.TB) *storage.Store {
	t.Helper()
	b, err := dir.Open(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return OpenStore(t, b)
}

// Image is the content of a snapshot's files: by name, a list of chunks.
type Image map[string][][]byte

// SmallImage returns an image of chunks of every kind: zero, compressible, not compressible,
// repeated, large, one byte.
func SmallImage(seed uint64) Image {
	noise := Bytes(seed, 5000)
	return Image{
		"checkpoint.img": {noise, bytes.Repeat([]byte("kernel state "), 900)},
		"pages.img": {
			make([]byte, 4096), bytes.Repeat(noise[:64], 64), Bytes(seed+1, 4096), make([]byte, 65536),
			noise, Bytes(seed+2, 70000),
			{byte(seed) | 1},
			{0},
			bytes.Repeat([]byte{7}, storage.MaxChunk),
		},
		"empty.img": {},
	}
}

// Write makes a snapshot of an image.
func Write(t testing.TB, s *storage.Store, key storage.Key, parent *storage.Manifest, image Image) *storage.Manifest {
	t.Helper()
	w, err := s.NewWriter(t.Context(), key, storage.WriterOptions{Parent: parent})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	Fill(t, w, image)
	m, err := w.Commit(t.Context(), snapshot.Meta{UID: "u-" + key.Name, Created: time.Unix(1, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Orphan deletes a snapshot's manifest and leaves everything else, like a removal that dies.
func Orphan(t testing.TB, s *storage.Store, key storage.Key) {
	t.Helper()
	if err := s.Backend().Delete(t.Context(), key.Namespace+"/snapshots/"+key.Name+"/manifest"); err != nil {
		t.Fatal(err)
	}
}

// Fill gives a writer an image.
func Fill(t testing.TB, w *storage.Writer, image Image) {
	t.Helper()
	var files []string
	for name := range image {
		files = append(files, name)
	}
	slices.Sort(files)
	for _, name := range files {
		f := w.File(name)
		for _, c := range image[name] {
			if err := f.Chunk(c); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// WantImage reads all of a snapshot, in whole files and in odd pieces, and compares it with image.
func WantImage(t testing.TB, m *storage.Manifest, image Image, stores ...*storage.Store) {
	t.Helper()
	r := storage.NewReader(m, stores...)
	defer r.Close()
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(m.Files) != len(image) {
		t.Fatalf("%d files, want %d", len(m.Files), len(image))
	}
	for name, chunks := range image {
		want := bytes.Join(chunks, nil)
		whole := make([]byte, len(want))
		if err := r.ReadAt(t.Context(), name, 0, [][]byte{whole}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(whole, want) {
			t.Fatalf("%s differs", name)
		}
		wantPieces(t, r, name, want)
	}
}

// wantPieces reads a file in pieces that do not align with chunks, each into several slices.
func wantPieces(t testing.TB, r *storage.Reader, name string, want []byte) {
	t.Helper()
	const piece = 3001
	for off := 0; off < len(want); off += 7 * piece {
		n := min(piece, len(want)-off)
		got := make([]byte, n)
		dst := [][]byte{got[:n/3], nil, got[n/3 : n/2], got[n/2:]}
		if err := r.ReadAt(t.Context(), name, int64(off), dst); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[off:off+n]) {
			t.Fatalf("%s differs in %d+%d", name, off, n)
		}
	}
}

func testRoundTrip(t *testing.T, b storage.Backend) {
	s := OpenStore(t, b)
	key, image := storage.Key{Namespace: "default", Name: "counter"}, SmallImage(1)
	wrote := Write(t, s, key, nil, image)
	again := OpenStore(t, b)
	m, err := again.Manifest(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if m.Digest != wrote.Digest || m.Meta.UID != "u-counter" || m.Stats() != wrote.Stats() {
		t.Fatalf("read %+v, wrote %+v", m.Stats(), wrote.Stats())
	}
	if st := m.Stats(); st.ZeroChunks != 3 || st.Packs != 1 || st.Chunks != 11 || st.StoredBytes >= st.RawBytes {
		t.Errorf("stats: %+v", st)
	}
	WantImage(t, m, image, again)
	if err := again.Verify(t.Context(), m, storage.VerifyOptions{ReadData: true}); err != nil {
		t.Error(err)
	}
}

func testLineage(t *testing.T, b storage.Backend) {
	s := OpenStore(t, b)
	image := SmallImage(5)
	parent := Write(t, s, storage.Key{Namespace: "ns", Name: "one"}, nil, image)
	before := len(names(t, b, "ns/packs/"))
	same := Write(t, s, storage.Key{Namespace: "ns", Name: "two"}, parent, image)
	if after := len(names(t, b, "ns/packs/")); after != before {
		t.Errorf("the same image again made %d packs", after-before)
	}
	image["pages.img"][2] = Bytes(77, 4096)
	child := Write(t, s, storage.Key{Namespace: "ns", Name: "three"}, same, image)
	if child.Stats().Packs != 2 || child.DigestKey != parent.DigestKey || child.Meta.Parent.Name != "two" {
		t.Errorf("child: %+v of %v", child.Stats(), child.Meta.Parent)
	}
	WantImage(t, child, image, s)
}

func testSameKey(t *testing.T, b storage.Backend) {
	s := OpenStore(t, b)
	key := storage.Key{Namespace: "ns", Name: "one"}
	var writers []*storage.Writer
	for i := range 4 {
		w, err := s.NewWriter(t.Context(), key, storage.WriterOptions{Parallelism: 1})
		if err != nil {
			t.Fatal(err)
		}
		Fill(t, w, SmallImage(uint64(10*i)))
		writers = append(writers, w)
	}
	errs := make([]error, len(writers))
	var wg sync.WaitGroup
	for i, w := range writers {
		wg.Go(func() { _, errs[i] = w.Commit(t.Context(), snapshot.Meta{}) })
	}
	wg.Wait()
	winner := slices.Index(errs, nil)
	if winner < 0 {
		t.Fatal(errs)
	}
	for i, err := range errs {
		if i != winner {
			wantKind(t, "loser", err, storage.ErrExists)
		}
	}
	m, err := s.Manifest(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	WantImage(t, m, SmallImage(uint64(10*winner)), s)
	if packs := names(t, b, "ns/packs/"); len(packs) != 1 {
		t.Errorf("the losers left packs: %q", packs)
	}
	_, err = s.NewWriter(t.Context(), key, storage.WriterOptions{})
	wantKind(t, "new writer", err, storage.ErrExists)
}

func testRemove(t *testing.T, b storage.Backend) {
	s := OpenStore(t, b)
	key := storage.Key{Namespace: "ns", Name: "one"}
	Write(t, s, key, nil, SmallImage(1))
	Write(t, s, storage.Key{Namespace: "other", Name: "one"}, nil, SmallImage(2))
	if err := b.Replace(t.Context(), "ns/snapshots/one/workingset", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "remove again", s.Remove(t.Context(), key), storage.ErrNotFound)
	if left := names(t, b, "ns/"); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	if has, err := s.Has(t.Context(), key); has || err != nil {
		t.Errorf("has: %v, %v", has, err)
	}
	var listed []string
	err := s.List(t.Context(), "", func(e storage.Listed) error {
		listed = append(listed, e.Key.String())
		return nil
	})
	if err != nil || !slices.Equal(listed, []string{"other/one"}) {
		t.Errorf("list: %q, %v", listed, err)
	}
}

// testRemoveShared removes the snapshots of a lineage one by one. Each removal must delete what no other snapshot
// names.
func testRemoveShared(t *testing.T, b storage.Backend) {
	s := OpenStore(t, b)
	var line []*storage.Manifest
	var images []Image
	for i := range 3 {
		image, parent := SmallImage(1), (*storage.Manifest)(nil)
		if i > 0 {
			parent = line[i-1]
		}
		for j := range i {
			image["pages.img"][j] = Bytes(uint64(77+j), 4096)
		}
		line = append(line, Write(t, s, storage.Key{Namespace: "ns", Name: fmt.Sprint("s", i)}, parent, image))
		images = append(images, image)
	}
	for left := []int{0, 1, 2}; len(left) > 0; {
		n := []int{1, 0, 2}[3-len(left)]
		if err := s.Remove(t.Context(), line[n].Meta.Key); err != nil {
			t.Fatal(err)
		}
		left = slices.DeleteFunc(left, func(i int) bool { return i == n })
		want := map[string]bool{}
		for _, i := range left {
			WantImage(t, line[i], images[i], s)
			for _, p := range line[i].Packs {
				want["ns/packs/"+p.ID.String()] = true
			}
		}
		if have := names(t, b, "ns/packs/"); !slices.Equal(have, slices.Sorted(maps.Keys(want))) {
			t.Errorf("without s%d: packs %q, want %v", n, have, want)
		}
	}
	if left := names(t, b, "ns/"); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// testHold removes a snapshot that two readers hold. Its packs must go with the last of them.
func testHold(t *testing.T, b storage.Backend) {
	s, other := OpenStore(t, b), OpenStore(t, b)
	m := Write(t, s, storage.Key{Namespace: "ns", Name: "one"}, nil, SmallImage(1))
	var holds []*storage.Hold
	for _, at := range []*storage.Store{s, other} {
		h, err := at.Hold(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
	}
	if err := other.Remove(t.Context(), m.Meta.Key); err != nil {
		t.Fatal(err)
	}
	if err := holds[0].Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	for _, h := range holds {
		WantImage(t, m, SmallImage(1), s)
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if left := names(t, b, "ns/"); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	_, err := s.Hold(t.Context(), m)
	wantKind(t, "hold what was removed", err, storage.ErrNotFound)
}

func testSweep(t *testing.T, b storage.Backend) {
	s := OpenStore(t, b)
	image := SmallImage(1)
	one := Write(t, s, storage.Key{Namespace: "ns", Name: "one"}, nil, image)
	image["pages.img"][2] = Bytes(77, 4096)
	two := Write(t, s, storage.Key{Namespace: "ns", Name: "two"}, one, image)
	Write(t, s, storage.Key{Namespace: "ns", Name: "gone"}, nil, SmallImage(9))
	for _, name := range []string{"one", "gone"} {
		Orphan(t, s, storage.Key{Namespace: "ns", Name: name})
	}
	for _, test := range []struct {
		options storage.SweepOptions
		want    storage.SweepResult
	}{
		{storage.SweepOptions{Namespace: "ns"}, storage.SweepResult{Named: 2, Young: 1}},
		{storage.SweepOptions{Namespace: "ns", Grace: 1, DryRun: true}, storage.SweepResult{Named: 2, Deleted: 1}},
		{storage.SweepOptions{Grace: 1}, storage.SweepResult{Named: 2, Deleted: 1}},
		{storage.SweepOptions{Grace: 1}, storage.SweepResult{Named: 2}},
	} {
		got, err := s.Sweep(t.Context(), test.options)
		if got.Deleted > 0 && got.Bytes == 0 {
			t.Error("deleted packs without bytes")
		}
		if got.Bytes = 0; err != nil || got != test.want {
			t.Errorf("sweep %+v: %+v, %v", test.options, got, err)
		}
	}
	WantImage(t, two, image, s)
}

func testReplicate(t *testing.T, b storage.Backend) {
	src, dst := NewDir(t), OpenStore(t, b)
	key, image := storage.Key{Namespace: "ns", Name: "one"}, SmallImage(1)
	m := Write(t, src, key, nil, image)
	for i := range 2 {
		var last int64
		err := storage.Replicate(t.Context(), dst, src, key, func(done, total int64) { last = total - done })
		if err != nil || last != 0 {
			t.Fatalf("replicate, time %d: %v, %d bytes left", i+1, err, last)
		}
		WantImage(t, m, image, dst)
	}
	if err := src.Remove(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	Write(t, src, key, nil, SmallImage(2))
	wantKind(t, "replicate another of that key", storage.Replicate(t.Context(), dst, src, key, nil), storage.ErrExists)
	WantImage(t, m, image, dst)
}

func testAbort(t *testing.T, b storage.Backend) {
	s := OpenStore(t, b)
	for i := range 3 {
		w, err := s.NewWriter(t.Context(), storage.Key{Namespace: "ns", Name: fmt.Sprint("s", i)}, storage.WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		Fill(t, w, SmallImage(uint64(i)))
		w.Abort()
		w.Abort()
		if _, err := w.Commit(t.Context(), snapshot.Meta{}); err == nil {
			t.Error("commit after abort succeeded")
		}
	}
	if left := names(t, b, "ns/"); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}
