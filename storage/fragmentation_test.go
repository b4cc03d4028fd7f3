package storage_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// counting is a Backend that counts reads.
type counting struct {
	storage.Backend
	reads, bytes atomic.Int64
}

func (b *counting) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	b.reads.Add(1)
	b.bytes.Add(int64(len(p)))
	return b.Backend.ReadAt(ctx, name, p, off)
}

// disk is a Backend whose reads take as long as a disk's, by the clock of a synctest bubble: what a Reader reads at
// once depends on how long reads take.
type disk struct{ counting }

func (b *disk) ReadAt(ctx context.Context, name string, p []byte, off int64) error {
	time.Sleep(100*time.Microsecond + time.Duration(len(p)/2)*time.Nanosecond)
	return b.counting.ReadAt(ctx, name, p, off)
}

// readAll reads a whole file, and returns the number of reads and their size.
func readAll(t *testing.T, s *storage.Store, m *storage.Manifest, want []byte) (reads, size int64) {
	t.Helper()
	c := &disk{counting{Backend: s.Backend()}}
	synctest.Test(t, func(t *testing.T) {
		got := make([]byte, len(want))
		r := storage.NewReader(m, storagetest.OpenStore(t, c))
		for _, p := range [][]byte{got[:1], got} { // the first tells the Reader how fast the disk is
			c.reads.Store(0)
			c.bytes.Store(0)
			if err := r.ReadAt(t.Context(), "pages.img", 0, [][]byte{p}); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatal("other bytes than written")
		}
	})
	return c.reads.Load(), c.bytes.Load()
}

// TestFragmentation: after 200 snapshots, each with 2 % of the chunks changed, the newest is read with few more bytes
// than one that was written whole, and with not too many more reads. The size of everything that was stored is bounded.
func TestFragmentation(t *testing.T) {
	const chunks, size, dirty, snapshots = 500, 40 << 10, 10, 200
	s := storagetest.NewDir(t)
	random := rand.New(rand.NewPCG(1, 2))
	image := storagetest.Image{"pages.img": nil}
	for i := range chunks {
		image["pages.img"] = append(image["pages.img"], storagetest.Bytes(uint64(i), size))
	}
	var m *storage.Manifest
	for n := range snapshots {
		for range dirty {
			image["pages.img"][random.IntN(chunks)] = storagetest.Bytes(uint64(random.IntN(1<<24)), size)
		}
		m = storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: fmt.Sprint("s", n)}, m, image)
		if len(m.Packs) > 40 {
			t.Fatalf("snapshot %d names %d packs", n, len(m.Packs))
		}
	}
	fresh := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "fresh"}, nil, image)
	want := bytes.Join(image["pages.img"], nil)
	freshReads, freshBytes := readAll(t, s, fresh, want)
	reads, size200 := readAll(t, s, m, want)
	var stored int64
	for _, name := range objects(t, s, "ns/packs/") {
		info, err := s.Backend().Stat(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		stored += info.Size
	}
	t.Logf("fresh: %d reads of %d bytes; after %d: %d reads of %d bytes, %d packs; %.1f %% stored for each",
		freshReads, freshBytes, snapshots, reads, size200, len(m.Packs),
		float64(stored)/float64(len(want))/snapshots*100)
	if float64(size200) > 1.3*float64(freshBytes) || reads > 4*freshReads {
		t.Error("fragmented")
	}
	if stored > int64(len(want))*snapshots*12/100 {
		t.Errorf("%d bytes stored for %d snapshots of %d", stored, snapshots, len(want))
	}
}
