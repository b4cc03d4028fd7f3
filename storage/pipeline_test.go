package storage_test

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/limit"
	"diapause.dev/storage/storagetest"
)

// sink is a Backend that discards packs, and measures the memory in use.
type sink struct {
	storage.Backend
	packs, peak atomic.Int64
}

func (b *sink) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if !strings.Contains(name, "/packs/") {
		return b.Backend.Create(ctx, name, r, size)
	}
	b.packs.Add(1)
	if used := heapInUse(); used > b.peak.Load() {
		b.peak.Store(used)
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

// Stat reports every pack as existing.
func (b *sink) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	if strings.Contains(name, "/packs/") {
		return storage.ObjectInfo{Name: name}, nil
	}
	return b.Backend.Stat(ctx, name)
}

func heapInUse() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// TestWriterMemory: a writer stays within its memory, however much is copied into it.
func TestWriterMemory(t *testing.T) {
	const memory = 32 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(5)) // so that garbage does not count
	runtime.GC()
	b := &sink{Backend: storagetest.NewDir(t).Backend()}
	s := storagetest.OpenStore(t, limit.New(b, limit.Options{Latency: time.Millisecond}))
	before := heapInUse()
	w, err := s.NewWriter(t.Context(), key, storage.WriterOptions{Memory: memory, PackSize: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	raw := storagetest.Bytes(1, 256<<10)
	f := w.File("pages.img")
	for i := range 800 { // 200 MiB
		raw[i%4096], raw[4096+i/256] = byte(i), byte(i>>8) // so that no two chunks are equal
		if err := f.Copy(raw); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context(), snapshot.Meta{}); err != nil {
		t.Fatal(err)
	}
	if n := b.packs.Load(); n < 40 || n > 70 {
		t.Errorf("%d packs", n)
	}
	if used := b.peak.Load() - before; used > memory {
		t.Errorf("%d MiB in use, at most %d allowed", used>>20, memory>>20)
	}
}

// TestWriterSlowBackend: many small packs are written to a backend that is slower than the writer, from copies of one
// buffer. They are read back as written.
func TestWriterSlowBackend(t *testing.T) {
	good := storagetest.NewDir(t)
	s := storagetest.OpenStore(t, limit.New(good.Backend(), limit.Options{Up: 100 << 20, Latency: 5 * time.Millisecond}))
	w, err := s.NewWriter(t.Context(), key, storage.WriterOptions{Memory: 1, PackSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	raw := make([]byte, 100<<10)
	var want []byte
	for i := range 100 {
		copy(raw, storagetest.Bytes(uint64(i), len(raw)))
		want = append(want, raw...)
		if err := w.File("pages.img").Copy(raw); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Commit(t.Context(), snapshot.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := storage.NewReader(m, good).ReadAt(t.Context(), "pages.img", 0, [][]byte{got}); err != nil ||
		!bytes.Equal(got, want) {
		t.Errorf("read back: %v", err)
	}
	if len(m.Packs) < 9 {
		t.Errorf("%d packs", len(m.Packs))
	}
}

// TestCodecs: what is written with each codec is read back, and the requested codec is used.
func TestCodecs(t *testing.T) {
	for _, name := range []string{"auto", "none", "s2", "zstd"} {
		codec, err := storage.ParseCodec(name)
		if err != nil {
			t.Fatal(err)
		}
		b := storagetest.NewDir(t).Backend()
		s, err := storage.Open(t.Context(), b, storage.Options{Codec: codec})
		if err != nil {
			t.Fatal(err)
		}
		image := storagetest.SmallImage(1)
		m := storagetest.Write(t, s, key, nil, image)
		storagetest.WantImage(t, m, image, s)
		if c := m.Files[0].Chunks[1].Codec; name != "auto" && c != codec {
			t.Errorf("%s: stored as %s", name, c)
		}
	}
	if _, err := storage.ParseCodec("lz4"); err == nil {
		t.Error("lz4 is known")
	}
}
