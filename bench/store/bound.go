package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"diapause.dev/storage"
	"diapause.dev/storage/digest"
	"diapause.dev/storage/limit"
)

// digests are what chunks are known by.
var digests = digest.New([32]byte{})

// work is a chunk as it was stored, for the bounds to do again what had to be done with it.
type work struct {
	codec  storage.Codec
	raw    []byte
	stored []byte
	to     []byte // where it is decoded to; nil: into a buffer that all chunks share
}

// placed returns the same work, with memory of its own for each chunk.
func placed(list []work, memory []byte) []work {
	list = slices.Clone(list)
	for i := range list {
		n := len(list[i].raw)
		list[i].to, memory = memory[:n:n], memory[n:]
	}
	return list
}

// workOf returns the chunks of a snapshot that are not zero, each once, with their stored bytes.
func workOf(ctx context.Context, p *place, m *storage.Manifest, im *image) ([]work, error) {
	packs := make([][]byte, len(m.Packs))
	for i, pack := range m.Packs {
		packs[i] = make([]byte, pack.Size)
		if err := p.calls.Backend.ReadAt(ctx, packObject(m, i), packs[i], 0); err != nil {
			return nil, err
		}
	}
	type at struct{ pack, offset uint32 }
	seen, raw := map[at]bool{}, im.raw
	var list []work
	for _, f := range m.Files {
		for _, c := range f.Chunks {
			if c.Codec != storage.CodecZero && !seen[at{c.Pack, c.Offset}] {
				seen[at{c.Pack, c.Offset}] = true
				list = append(list, work{codec: c.Codec, raw: raw[:c.Raw], stored: packs[c.Pack][c.Offset:][:c.Stored]})
			}
			raw = raw[c.Raw:]
		}
	}
	return list, nil
}

func packObject(m *storage.Manifest, i int) string {
	return fmt.Sprintf("%s/packs/%s", m.Meta.Namespace, m.Packs[i].ID)
}

// onAllCores calls do for each piece of work, from as many goroutines as there are cores, each with
// a buffer of its own, and returns how long it took.
func onAllCores(list []work, do func(w work, buffer []byte)) time.Duration {
	var next atomic.Int64
	var group sync.WaitGroup
	buffers := make([][]byte, runtime.GOMAXPROCS(0))
	for i := range buffers {
		buffers[i] = make([]byte, s2.MaxEncodedLen(storage.MaxChunk))
	}
	began := time.Now()
	for _, buffer := range buffers {
		group.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(list); i = next.Add(1) - 1 {
				do(list[i], buffer)
			}
		})
	}
	group.Wait()
	return time.Since(began)
}

var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

// encode compresses a chunk in a codec and throws the result away.
func encode(codec storage.Codec, w work, buffer []byte) {
	switch codec {
	case storage.CodecZstd:
		encoder().EncodeAll(w.raw, buffer[:0])
	case storage.CodecS2:
		s2.Encode(buffer, w.raw)
	case storage.CodecNone:
		copy(buffer, w.raw)
	}
}

// encodeAlone compresses all chunks, each in the codec that it was stored in.
func encodeAlone(list []work) time.Duration {
	return onAllCores(list, func(w work, buffer []byte) { encode(w.codec, w, buffer) })
}

// encodeAndDigest is what no writer can do without: the digest of each chunk, its codec, and the
// digest of the stored bytes in their pack.
func encodeAndDigest(list []work) time.Duration {
	return onAllCores(list, func(w work, buffer []byte) {
		digests.Sum(w.raw)
		encode(w.codec, w, buffer)
		digest.OfWhole(w.stored)
	})
}

// decode decompresses a chunk from memory to memory.
func decode(w work, buffer []byte) []byte {
	if w.to != nil {
		buffer = w.to
	}
	out := buffer[:len(w.raw)]
	switch w.codec {
	case storage.CodecZstd:
		out, _ = decoder().DecodeAll(w.stored, buffer[:0]) // it has been read before
	case storage.CodecS2:
		out, _ = s2.Decode(buffer, w.stored)
	case storage.CodecNone:
		copy(out, w.stored)
	}
	return out
}

func decodeAlone(list []work) time.Duration {
	return onAllCores(list, func(w work, buffer []byte) { decode(w, buffer) })
}

// decodeAndVerify is the loop that no reader can do without: decompress, digest.
func decodeAndVerify(list []work) time.Duration {
	return onAllCores(list, func(w work, buffer []byte) { digests.Sum(decode(w, buffer)) })
}

// wireAlone sends so many bytes over a wire, in as many objects as a snapshot would need, and
// returns how long that took.
func (b *bench) wireAlone(ctx context.Context, wire limit.Options, size int64) (time.Duration, error) {
	p, err := b.newPlace(ctx, local, storage.Options{})
	if err != nil {
		return 0, err
	}
	sink := limit.New(swallow{p.calls.Backend}, wire)
	began := time.Now()
	err = sink.Create(ctx, namespace+"/packs/x", io.LimitReader(zeros{}, size), size)
	return time.Since(began), errors.Join(err, p.remove())
}

// swallow is a backend on which writing costs nothing.
type swallow struct{ storage.Backend }

func (swallow) Create(_ context.Context, _ string, r io.Reader, _ int64) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, 1<<20))
	return err
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
