package storage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// batch is the work of one ReadAt or Prefetch: chunks to fetch, and chunks that are already being fetched.
type batch struct {
	r     *Reader
	file  *fileIndex
	out   scatter
	wants []want
	waits []wait
	early bool // what it begins with is wanted first
}

// want is a chunk to be fetched.
type want struct {
	chunk *Chunk
	index int    // in the file
	dst   []byte // of the chunk's raw length: the caller's memory, or that of entry, which make makes
	entry *entry // to be filled, or nil
	place int    // in the batch
	part
}

// make makes memory for a chunk that the cache will keep. It is called when the chunk is there to be decoded: a batch
// that waits holds none.
func (w *want) make() {
	if w.dst == nil {
		w.dst = make([]byte, w.chunk.Raw)
	}
}

// part says which bytes of a decoded chunk are copied where. If out is empty, none are.
type part struct {
	from, n int64
	out     scatter
}

func (p *part) copy(data []byte) { p.out.copy(data[p.from : p.from+p.n]) }

// wait is a chunk that is already being fetched.
type wait struct {
	chunk *Chunk
	index int
	part
}

var errAbandoned = fmt.Errorf("%w: read abandoned", context.Canceled)

// add arranges for n bytes of a chunk, from its byte from on, to be copied to the next bytes of out.
func (b *batch) add(i int, from, n int64) {
	c := &b.file.file.Chunks[i]
	if c.Codec == CodecZero {
		b.out.zero(n)
		return
	}
	id := chunkID{c.Digest, c.Raw}
	e, there := b.r.cache.peek(id)
	if !there && n == int64(c.Raw) {
		if dst, ok := b.out.straight(int(n)); ok {
			b.wants = append(b.wants, want{chunk: c, index: i, dst: dst, place: len(b.wants)})
			return
		}
	}
	p := part{from, n, b.out.cut(int(n))}
	if there {
		if data, ok := e.loaded(); ok {
			p.copy(data)
			return
		}
	}
	b.claim(id, c, i, p)
}

// prefetch arranges for a chunk to be loaded into the reader's cache.
func (b *batch) prefetch(i int) {
	c := &b.file.file.Chunks[i]
	id := chunkID{c.Digest, c.Raw}
	if _, there := b.r.cache.peek(id); c.Codec != CodecZero && !there {
		b.claim(id, c, i, part{})
	}
}

func (b *batch) claim(id chunkID, c *Chunk, i int, p part) {
	if e, mine := b.r.cache.claim(id); mine {
		b.wants = append(b.wants, want{
			chunk: c, index: i, entry: e, place: len(b.wants), part: p,
		})
	} else if p.n > 0 {
		b.waits = append(b.waits, wait{chunk: c, index: i, part: p})
	}
}

// complete records that a wanted chunk is decoded, or has failed.
func (b *batch) complete(w *want, err error) error {
	if e := w.entry; e != nil {
		w.entry = nil
		b.r.cache.fill(e, w.dst, err)
	}
	if err != nil {
		return fmt.Errorf("chunk %d: %w", w.index, err)
	}
	if w.n > 0 {
		w.copy(w.dst)
	}
	w.dst = nil // from here on the cache alone keeps it
	return nil
}

// abandon gives up the claims to chunks that were not fetched because something failed before.
func (b *batch) abandon() {
	for i := range b.wants {
		if w := &b.wants[i]; w.entry != nil {
			_ = b.complete(w, errAbandoned) // goroutines that wait for the chunk load it themselves
		}
	}
}

// earlyRun is the largest read of a batch whose beginning is wanted first, in bytes. All reads that are under way share
// the wire, so the larger they are, the later the first of them ends.
const earlyRun = 512 << 10

// run is a range of a pack that is read at once, and the wanted chunks in it.
type run struct {
	pack     uint32
	from, to int64
	wants    []*want
	place    int // in the batch, of its first chunk
}

// runs combines the wanted chunks into reads, as suits the store that serves them. The reads are in the order of the
// batch, so that what a working set begins with comes first.
func (b *batch) runs() (list []run) {
	order := make([]*want, len(b.wants))
	for i := range b.wants {
		order[i] = &b.wants[i]
	}
	slices.SortStableFunc(order, func(a, b *want) int {
		return cmp.Or(cmp.Compare(a.chunk.Pack, b.chunk.Pack), cmp.Compare(a.chunk.Offset, b.chunk.Offset))
	})
	var gap, most int64
	for i, w := range order {
		from, to := int64(w.chunk.Offset), int64(w.chunk.Offset)+int64(w.chunk.Stored)
		if n := len(list); n > 0 {
			last := &list[n-1]
			if last.pack == w.chunk.Pack && from <= last.to+gap && to <= last.from+most {
				last.to, last.wants = max(last.to, to), append(last.wants, w)
				last.place = min(last.place, w.place)
				continue
			}
		}
		if i == 0 || order[i-1].chunk.Pack != w.chunk.Pack {
			gap, most = b.r.speed(w.chunk.Pack).bounds()
			if b.early {
				most = min(most, earlyRun)
			}
		}
		list = append(list, run{w.chunk.Pack, from, to, order[i : i+1 : len(order)], w.place})
	}
	slices.SortStableFunc(list, func(a, b run) int { return cmp.Compare(a.place, b.place) })
	return list
}

// direct returns the memory into which a run can be read without decoding. It succeeds if the chunks are stored
// uncompressed and lie side by side in memory in the same order as in the pack.
func (r *run) direct() ([]byte, bool) {
	dst := r.wants[0].dst[:0]
	at := r.from
	for _, w := range r.wants {
		if w.chunk.Codec != CodecNone || w.chunk.Stored != w.chunk.Raw || int64(w.chunk.Offset) != at || w.entry != nil {
			return nil, false
		}
		n := len(dst)
		if cap(dst) < n+len(w.dst) || &dst[:n+1][n] != &w.dst[0] {
			return nil, false
		}
		dst = dst[:n+len(w.dst)]
		at += int64(w.chunk.Stored)
	}
	return dst, true
}
