package storage_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/limit"
	"diapause.dev/storage/storagetest"
)

const benchChunk = 256 << 10

// heap returns chunks that compress about as well as a heap does: noise and text, page by page. Every eighth chunk is
// zero.
func heap(chunks int) (list [][]byte, raw int64) {
	words := bytes.Repeat([]byte("{'name': 'object', 'value': 12345, 'next': None} "), 100)
	for i := range chunks {
		c := make([]byte, benchChunk)
		for off := 0; i%8 != 0 && off < len(c); off += 4096 {
			page := c[off : off+4096]
			copy(page, words[off/4096%40:])
			copy(page[:1024], storagetest.Bytes(uint64(i*64+off/4096), 1024))
		}
		list = append(list, c)
		raw += benchChunk
	}
	return list, raw
}

func writeHeap(b *testing.B, s *storage.Store, key storage.Key, parent *storage.Manifest,
	chunks [][]byte,
) *storage.Manifest {
	b.Helper()
	return storagetest.Write(b, s, key, parent, storagetest.Image{"pages.img": chunks})
}

func BenchmarkWriter(b *testing.B) {
	chunks, raw := heap(512)
	s := storagetest.NewDir(b)
	b.SetBytes(raw)
	for i := 0; b.Loop(); i++ {
		writeHeap(b, s, storage.Key{Namespace: "ns", Name: fmt.Sprint("s", i)}, nil, chunks)
	}
}

// BenchmarkWriterSame writes what the parent already has.
func BenchmarkWriterSame(b *testing.B) {
	chunks, raw := heap(512)
	s := storagetest.NewDir(b)
	parent := writeHeap(b, s, storage.Key{Namespace: "ns", Name: "parent"}, nil, chunks)
	b.SetBytes(raw)
	for i := 0; b.Loop(); i++ {
		writeHeap(b, s, storage.Key{Namespace: "ns", Name: fmt.Sprint("s", i)}, parent, chunks)
	}
}

func BenchmarkReader(b *testing.B) {
	chunks, raw := heap(256)
	s := storagetest.NewDir(b)
	m := writeHeap(b, s, key, nil, chunks)
	dst := make([]byte, raw)
	b.Run("whole", func(b *testing.B) { benchRead(b, m, s, dst, len(dst)) })
	b.Run("64KiB", func(b *testing.B) { benchRead(b, m, s, dst, 64<<10) })
}

// benchRead reads the file once in pieces, with the cache cold.
func benchRead(b *testing.B, m *storage.Manifest, s *storage.Store, dst []byte, piece int) {
	b.SetBytes(int64(len(dst)))
	for b.Loop() {
		r := storage.NewReader(m, s)
		for off := 0; off < len(dst); off += piece {
			if err := r.ReadAt(b.Context(), "pages.img", int64(off), [][]byte{dst[off : off+piece]}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkReplicate copies a snapshot of one pack to a store with a long latency. It measures how many round trips
// follow each other.
func BenchmarkReplicate(b *testing.B) {
	for name, keys := range map[string]storage.Keyring{"plain": nil, "encrypted": anyKey{}} {
		b.Run(name, func(b *testing.B) {
			const latency = 50 * time.Millisecond
			src := openStore(b, storagetest.NewDir(b).Backend(), keys)
			dst := openStore(b, limit.New(storagetest.NewDir(b).Backend(), limit.Options{Latency: latency}), keys)
			for i := 0; b.Loop(); i++ {
				k := storage.Key{Namespace: "ns", Name: fmt.Sprint("s", i)}
				storagetest.Write(b, src, k, nil, tinyImage())
				if err := storage.Replicate(b.Context(), dst, src, k, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(latency), "round-trips/op")
		})
	}
}

func openStore(b *testing.B, backend storage.Backend, keys storage.Keyring) *storage.Store {
	b.Helper()
	s, err := storage.Open(b.Context(), backend, storage.Options{Keyring: keys})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkManifest(b *testing.B) {
	m := storage.Manifest{Meta: snapshot.Meta{Key: key}, Packs: []storage.Pack{{Size: 200 << 20}}}
	f := storage.File{Name: "pages.img"}
	for i := range 1 << 16 {
		c := storage.Chunk{Raw: 64 << 10, Stored: 3000, Offset: uint32(32 + i*3000), Codec: storage.CodecZstd}
		copy(c.Digest[:], storagetest.Bytes(uint64(i), 32))
		f.Chunks = append(f.Chunks, c)
		f.Size += int64(c.Raw)
	}
	m.Files = []storage.File{f}
	data, err := storage.EncodeManifest(&m)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := storage.DecodeManifest(data); err != nil {
			b.Fatal(err)
		}
	}
}
