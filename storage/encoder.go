package storage

import (
	"time"

	"github.com/klauspost/compress/s2"

	"diapause.dev/storage/digest"
	"diapause.dev/storage/format"
)

// encoder does all work on chunks that needs no order: it looks whether they are stored already, and otherwise digests
// and compresses them. Safe for concurrent use.
type encoder struct {
	digests *digest.Keyed
	lineage *lineage
	chooser *chooser
	printed bool // fingerprints are taken of all chunks
}

// prepare does all work on a chunk that needs no order. If there is a parent, or chunks were stored ahead, it first
// looks whether the chunk is stored already. Otherwise it computes the digest after compressing, because compressing
// brings the chunk into the processor's cache faster, and a digest of cached data costs less.
func (e *encoder) prepare(j job) placement {
	p := placement{job: j, chunk: Chunk{Raw: uint32(len(j.raw))}}
	if p.placed = isZero(j.raw); p.placed {
		if e.printed {
			p.print = e.digests.Fingerprint(j.raw)
		}
		return p
	}
	if !e.printed {
		e.compress(&p)
		p.chunk.Digest = e.digests.Sum(j.raw)
		return p
	}
	if p.placed = e.reuse(&p); !p.placed {
		e.compress(&p)
	}
	return p
}

// reuse looks for a chunk among those that are stored already: first by its fingerprint, then, if that is not known, by
// its digest.
func (e *encoder) reuse(p *placement) bool {
	p.print = e.digests.Fingerprint(p.raw)
	c, ok := e.recognised(&p.print, p.chunk.Raw)
	if !ok {
		p.chunk.Digest = e.digests.Sum(p.raw)
		c, ok = e.lineage.find(p.chunk.Digest, p.chunk.Raw)
	}
	if ok {
		p.chunk = c
	}
	return ok
}

// recognised returns the parent's chunk with a fingerprint.
func (e *encoder) recognised(print *[format.PrintSize]byte, raw uint32) (c Chunk, ok bool) {
	n, ok := e.lineage.recognise(print, raw)
	if ok {
		c = e.lineage.known.chunk(n)
	}
	return c, ok
}

// compress computes the bytes to store for a chunk.
func (e *encoder) compress(p *placement) {
	p.buffer = getBuffer()
	sized(p.buffer, s2.MaxEncodedLen(len(p.raw))+format.SealSize)
	began := time.Now()
	codec := e.chooser.choose()
	p.chunk.Codec, p.stored = format.Compress(codec, *p.buffer, p.raw)
	e.chooser.learn(codec, len(p.raw), len(p.stored), time.Since(began))
	e.own(p)
}

// own makes sure that a chunk's stored bytes do not change until the backend has read them. Raw bytes stay where they
// are, unless they must be encrypted, or are in a buffer that the writer or the caller of Precopy wants back.
func (e *encoder) own(p *placement) {
	switch {
	case p.chunk.Codec != CodecNone:
	case e.lineage.lock != nil || p.copy != nil || p.file == nil:
		p.stored = append((*p.buffer)[:0], p.raw...)
	default:
		putBuffer(p.buffer)
		p.buffer = nil
	}
}
