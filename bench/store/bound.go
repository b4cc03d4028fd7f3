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

// rawWork returns all chunks of an image, as they are before anything is done with them.
func rawWork(im *image) (list []work) {
	for _, raw := range im.chunks {
		list = append(list, work{raw: raw})
	}
	return list
}

func packObject(m *storage.Manifest, i int) string {
	return fmt.Sprintf("%s/packs/%s", m.Meta.Namespace, m.Packs[i].ID)
}

// core is what a loop has for itself on one of the cores, so that none waits for, or cools down, what
// another one uses.
type core struct {
	buffer  []byte
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

var cores = sync.OnceValue(func() []*core {
	list := make([]*core, runtime.GOMAXPROCS(0))
	for i := range list {
		list[i] = newCore()
	}
	return list
})

func newCore() *core {
	c := &core{buffer: make([]byte, s2.MaxEncodedLen(storage.MaxChunk))}
	var err error
	c.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constants
	}
	c.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(err) // the options are constants
	}
	return c
}

// onAllCores calls do for each piece of work, from as many goroutines as there are cores, and returns
// how long it took.
func onAllCores(list []work, do func(c *core, w work)) time.Duration {
	var next atomic.Int64
	var group sync.WaitGroup
	all := cores()
	began := time.Now()
	for _, c := range all {
		group.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(list); i = next.Add(1) - 1 {
				do(c, list[i])
			}
		})
	}
	group.Wait()
	return time.Since(began)
}

// encode compresses a chunk in the codec that it was stored in, and throws the result away.
func (c *core) encode(w work) {
	switch w.codec {
	case storage.CodecZstd:
		c.encoder.EncodeAll(w.raw, c.buffer[:0])
	case storage.CodecS2:
		s2.Encode(c.buffer, w.raw)
	case storage.CodecNone:
		copy(c.buffer, w.raw)
	}
}

// encodeAlone compresses all chunks.
func encodeAlone(list []work) time.Duration { return onAllCores(list, (*core).encode) }

// encodeAndDigest is what no writer can do without: the digest of each chunk, its codec, and the
// digest of the stored bytes in their pack.
func encodeAndDigest(list []work) time.Duration {
	return onAllCores(list, func(c *core, w work) {
		c.encode(w)
		digests.Sum(w.raw)
		digest.OfWhole(w.stored)
	})
}

// fingerprintAlone takes the fingerprint of each chunk, and digestAlone the digest.
func fingerprintAlone(list []work) time.Duration {
	return onAllCores(list, func(_ *core, w work) { digests.Fingerprint(w.raw) })
}

func digestAlone(list []work) time.Duration {
	return onAllCores(list, func(_ *core, w work) { digests.Sum(w.raw) })
}

// decode decompresses a chunk from memory to memory.
func (c *core) decode(w work) []byte {
	buffer := c.buffer
	if w.to != nil {
		buffer = w.to
	}
	out := buffer[:len(w.raw)]
	switch w.codec {
	case storage.CodecZstd:
		out, _ = c.decoder.DecodeAll(w.stored, buffer[:0]) // it has been read before
	case storage.CodecS2:
		out, _ = s2.Decode(buffer, w.stored)
	case storage.CodecNone:
		copy(out, w.stored)
	}
	return out
}

func decodeAlone(list []work) time.Duration {
	return onAllCores(list, func(c *core, w work) { c.decode(w) })
}

// decodeAndVerify is the loop that no reader can do without: decompress, digest.
func decodeAndVerify(list []work) time.Duration {
	return onAllCores(list, func(c *core, w work) { digests.Sum(c.decode(w)) })
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
