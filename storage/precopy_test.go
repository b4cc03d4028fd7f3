package storage_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// ahead stores chunks ahead of time, from several goroutines at once, and returns their places.
func ahead(t *testing.T, w *storage.Writer, chunks [][]byte) []storage.Place {
	t.Helper()
	var group sync.WaitGroup
	places := make([]storage.Place, len(chunks))
	for worker := range 4 {
		group.Go(func() {
			for i := worker; i < len(chunks); i += 4 {
				buffer := append([]byte(nil), chunks[i]...)
				var err error
				if places[i], err = w.Precopy(buffer); err != nil {
					t.Error(err)
				}
				clear(buffer)
			}
		})
	}
	group.Wait()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return places
}

// readBack checks that the chunks at places can be read before there is a snapshot.
func readBack(t *testing.T, w *storage.Writer, places []storage.Place, want [][]byte) {
	t.Helper()
	r, err := w.Reader(places)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(bytes.Join(want, nil)))
	err = r.ReadAt(t.Context(), storage.AheadFile, 0, [][]byte{got})
	if err != nil || !bytes.Equal(got, bytes.Join(want, nil)) {
		t.Errorf("what was stored ahead reads back differently: %v", err)
	}
}

// TestPrecopy: chunks that were stored ahead, also zeros and what the parent has, are not stored again, and can be read
// before there is a snapshot. What has changed since is stored. Everything reads back, and each snapshot is the next
// one's parent.
func TestPrecopy(t *testing.T) {
	for name, keys := range map[string]storage.Keyring{"plain": nil, "encrypted": keyDir(t, "default", hexKey(1))} {
		t.Run(name, func(t *testing.T) {
			s := locked(t, storagetest.NewDir(t), keys)
			var parent *storage.Manifest
			for i := range uint64(4) {
				key := storage.Key{Namespace: "ns", Name: fmt.Sprint("s", i)}
				w, err := s.NewWriter(t.Context(), key, storage.WriterOptions{Parent: parent, Fingerprints: true})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Abort()
				before := [][]byte{
					storagetest.Bytes(1, 60000), make([]byte, 4096), make([]byte, 65536), storagetest.Bytes(2, 60001),
					storagetest.Bytes(100+i, 7000), make([]byte, 4096), storagetest.Bytes(200+i, 5000),
				}
				places := ahead(t, w, before)
				readBack(t, w, places, before)
				image := append(before[:6:6], storagetest.Bytes(300+i, 6000))
				f := w.File("pages.img")
				for _, place := range places[:6] {
					if err := f.Known(place); err != nil {
						t.Fatal(err)
					}
				}
				if err := f.Chunk(image[6]); err != nil {
					t.Fatal(err)
				}
				if _, ok := w.Recognise(before[0]); ok != (parent != nil) {
					t.Errorf("a chunk of the parent is recognised: %v", ok)
				}
				m, err := w.Commit(t.Context(), snapshot.Meta{})
				if err != nil {
					t.Fatal(err)
				}
				storagetest.WantImage(t, m, storagetest.Image{"pages.img": image}, s)
				if n := added(m, parent); parent != nil && n > 20000 {
					t.Errorf("%s stores %d bytes", key, n)
				}
				if parent, err = s.Manifest(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				if !parent.Fingerprinted() {
					t.Error("no fingerprints for the next snapshot")
				}
			}
		})
	}
}

// TestPrecopyNothingLeft: packs of which nothing has become part of the snapshot are removed.
func TestPrecopyNothingLeft(t *testing.T) {
	s := storagetest.NewDir(t)
	w, err := s.NewWriter(t.Context(), storage.Key{Namespace: "ns", Name: "a"},
		storage.WriterOptions{Fingerprints: true, PackSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	var chunks [][]byte
	for i := range uint64(64) {
		chunks = append(chunks, storagetest.Bytes(i, 65536))
	}
	if err := w.File("pages.img").Known(ahead(t, w, chunks)[0]); err != nil {
		t.Fatal(err)
	}
	m, err := w.Commit(t.Context(), snapshot.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	packs := 0
	err = s.Backend().List(t.Context(), "ns/packs/", func(storage.ObjectInfo) error { packs++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if packs != 1 || len(m.Packs) != 1 {
		t.Errorf("%d packs are there, %d are named", packs, len(m.Packs))
	}
	storagetest.WantImage(t, m, storagetest.Image{"pages.img": chunks[:1]}, s)
}

// TestKnownNowhere: a place that the writer has not given is refused.
func TestKnownNowhere(t *testing.T) {
	s := storagetest.NewDir(t)
	w, err := s.NewWriter(t.Context(), storage.Key{Namespace: "ns", Name: "a"}, storage.WriterOptions{Fingerprints: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, at := range []storage.Place{-1, 0, 7, 1 << 40, 1<<40 | 3, 1 << 62} {
		if err := w.File("pages.img").Known(at); err == nil {
			t.Errorf("there is a chunk at %d", at)
		}
	}
}

// TestPrecopyReadWhileStoring reads what was stored ahead while other chunks are stored in packs of their own.
func TestPrecopyReadWhileStoring(t *testing.T) {
	s := locked(t, storagetest.NewDir(t), nil)
	w, err := s.NewWriter(t.Context(), storage.Key{Namespace: "ns", Name: "s"}, storage.WriterOptions{PackSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	before := [][]byte{storagetest.Bytes(1, 60000), storagetest.Bytes(2, 60001)}
	places := ahead(t, w, before)
	f := w.File("pages.img")
	for i := range uint64(100) {
		if err := f.Chunk(storagetest.Bytes(10+i, 60000)); err != nil {
			t.Fatal(err)
		}
		readBack(t, w, places, before)
	}
	if _, err := w.Commit(t.Context(), snapshot.Meta{}); err != nil {
		t.Fatal(err)
	}
}
