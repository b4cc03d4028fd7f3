//go:build !race

package storage_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// TestMemoryOfChunks: the memory that a writer holds for each chunk, beside its fixed memory, is bounded while all of a
// snapshot is in it. It was once 375 bytes, and the parent's manifest: half a gigabyte for a pod of 64 GiB. The race
// detector's own memory would count, so this test does not run with it.
func TestMemoryOfChunks(t *testing.T) {
	const chunks, most, mostInCommit = 200_000, 256, 384
	s := storagetest.NewDir(t)
	var parent *storage.Manifest
	for i, name := range []string{"first", "second", "third"} {
		before := reachable()
		w, err := s.NewWriter(t.Context(), storage.Key{Namespace: "ns", Name: name}, storage.WriterOptions{Parent: parent})
		if err != nil {
			t.Fatal(err)
		}
		fillTiny(t, w, chunks, uint64(i))
		held, peak := written(before, chunks, most), watchHeap()
		parent, err = w.Commit(t.Context(), snapshot.Meta{})
		committing := (peak() - before) / chunks
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes for each chunk, and at most %d while it is committed", name, held, committing)
		if held > most || committing > mostInCommit {
			t.Errorf("%s: %d and %d bytes for each chunk, at most %d and %d allowed", name, held, committing, most, mostInCommit)
		}
	}
}

// written waits until what a writer holds for each chunk is at most that much: its packs are written in the background.
// It returns what is held in the end.
func written(before int64, chunks, most int64) (held int64) {
	for range 200 {
		if held = (reachable() - before) / chunks; held <= most {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return held
}

// TestTooManyChunks: a snapshot that would not fit into its manifest is refused before any of it is written.
func TestTooManyChunks(t *testing.T) {
	w, err := storagetest.NewDir(t).NewWriter(t.Context(), key, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := w.File("pages.img").Expect(storage.MaxChunks + 1); !errors.Is(err, storage.ErrTooManyChunks) {
		t.Errorf("refused: %v", err)
	}
	if err := w.File("pages.img").Expect(1000); err != nil {
		t.Error(err)
	}
}

// fillTiny gives a writer chunks of a few bytes, one in eight of them new in each generation.
func fillTiny(t *testing.T, w *storage.Writer, chunks int, generation uint64) {
	t.Helper()
	f := w.File("pages.img")
	if err := f.Expect(chunks); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 24)
	for i := range chunks {
		binary.LittleEndian.PutUint64(raw, uint64(i)+1)
		if i%8 == 0 {
			binary.LittleEndian.PutUint64(raw[8:], generation)
		} else {
			binary.LittleEndian.PutUint64(raw[8:], 0)
		}
		if err := f.Copy(raw); err != nil {
			t.Fatal(err)
		}
	}
}

// watchHeap collects garbage eagerly, and watches the heap until peak is called, which returns its largest size.
func watchHeap() (peak func() int64) {
	percent := debug.SetGCPercent(5)
	quit, most := make(chan struct{}), make(chan int64)
	go func() {
		samples, tick := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}, time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for max := int64(0); ; {
			metrics.Read(samples)
			if n := int64(samples[0].Value.Uint64()); n > max {
				max = n
			}
			select {
			case <-tick.C:
			case <-quit:
				most <- max
				return
			}
		}
	}()
	return func() int64 {
		close(quit)
		debug.SetGCPercent(percent)
		return <-most
	}
}

// reachable returns the bytes that are reachable.
func reachable() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
