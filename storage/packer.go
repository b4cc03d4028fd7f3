package storage

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"diapause.dev/storage/failpoint"
)

// firstPack is the size of the first pack that is sealed because the backend has nothing to do.
const firstPack = 1 << 20

// placement is a chunk that has been worked on and waits for its turn to be placed.
type placement struct {
	job
	chunk  Chunk   // all but pack, offset and stored length, unless placed
	placed bool    // needs no bytes: zero, or stored already
	stored []byte  // the bytes to store, unless placed
	buffer *[]byte // to be given back, or nil
}

// packer lays chunks into packs in the order in which they were handed in, so that neighbours in a
// file are neighbours in a pack, and writes the packs.
type packer struct {
	w       *Writer
	uploads sync.WaitGroup
	slots   chan struct{} // one token per upload under way

	mu       sync.Mutex
	waiting  map[uint64]placement // done out of order
	next     uint64               // whose turn it is
	open     *openPack            // being filled, or nil
	raw, out int64                // for Progress

	filled atomic.Int64 // bytes in the open pack
	early  atomic.Int64 // the size from which on it is sealed if the backend has nothing to do

	packs []*openPack // by number
}

// openPack is a pack in memory, and what is left of it once it is written.
type openPack struct {
	id     PackID
	number int     // in packer.packs
	data   *[]byte // header and chunks; nil when written
	chunks []place // to be encrypted
	pack   Pack    // set by upload, valid after finish
}

// place is where a chunk lies in its pack, before it is encrypted.
type place struct{ offset, size uint32 }

func newPacker(w *Writer) *packer {
	return &packer{w: w, slots: make(chan struct{}, w.options.uploads()), waiting: map[uint64]placement{}}
}

// place takes a chunk, and lays it and those behind it that waited for it into packs. It waits
// while too many packs are being written.
func (p *packer) place(pl placement) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[pl.seq] = pl
	for {
		pl, ok := p.waiting[p.next]
		if !ok {
			return nil
		}
		delete(p.waiting, p.next)
		p.next++
		if err := p.lay(pl); err != nil {
			return err
		}
	}
}

func (p *packer) lay(pl placement) error {
	c := pl.chunk
	if !pl.placed {
		known, ok := p.w.lineage.find(c.Digest, c.Raw) // by a chunk of this snapshot, meanwhile
		if ok {
			c = known
		} else if err := p.store(&c, pl.stored); err != nil {
			return err
		}
		putBuffer(pl.buffer)
	}
	p.w.settle(pl.job, c)
	p.raw += int64(c.Raw)
	if p.w.options.Progress != nil {
		p.w.options.Progress(p.raw, p.out)
	}
	return nil
}

// store appends a chunk's bytes to the open pack and says in c where they are.
func (p *packer) store(c *Chunk, data []byte) error {
	if p.open != nil && len(*p.open.data)+len(data) > p.limit() {
		if err := p.seal(); err != nil {
			return err
		}
	}
	if p.open == nil {
		p.open = p.newPack()
	}
	buf := p.open.data
	c.Pack = p.w.lineage.inherited() + uint32(p.open.number)
	c.Offset, c.Stored = uint32(len(*buf)), uint32(len(data))
	*buf = append(roomFor(*buf, len(data)+sealed, int(p.w.options.PackSize)), data...)
	if p.w.lineage.lock != nil {
		p.open.chunks = append(p.open.chunks, place{c.Offset, c.Stored})
		*buf = append(*buf, make([]byte, sealed)...)
		c.Stored += sealed
	}
	p.out += int64(len(data))
	p.filled.Store(int64(len(*buf)))
	p.w.lineage.add(*c)
	return nil
}

// limit is the size at which the open pack is sealed. A backend that has nothing to do gets a pack
// soon, but not many small ones: the n-th is at least 2^n as large as the first may be.
func (p *packer) limit() int {
	if len(p.slots) == 0 {
		return int(p.early.Load())
	}
	return int(p.w.options.PackSize)
}

// roomFor gives a pack's buffer room for n more bytes, doubling it, so that a small snapshot needs
// little and a large one copies little.
func roomFor(buf []byte, n, target int) []byte {
	if len(buf)+n <= cap(buf) {
		return buf
	}
	larger := make([]byte, len(buf), min(max(2*cap(buf), len(buf)+n, MaxChunk), max(target, len(buf)+n)))
	copy(larger, buf)
	return larger
}

func (p *packer) newPack() *openPack {
	o := &openPack{id: newPackID(), number: len(p.packs), data: packBuffers.Get().(*[]byte)}
	*o.data = append((*o.data)[:0], packHeader(o.id)...)
	p.early.Store(min(p.w.options.PackSize, firstPack<<min(len(p.packs), 16)))
	p.filled.Store(packHeaderSize)
	p.packs = append(p.packs, o)
	return o
}

// seal hands the open pack to an upload, when there is a slot for it. The packer stays locked
// meanwhile, so that an upload must get along without the lock.
func (p *packer) seal() error {
	select {
	case p.slots <- struct{}{}:
	case <-p.w.ctx.Done():
		return context.Cause(p.w.ctx)
	}
	o := p.open
	p.open = nil
	p.uploads.Go(func() {
		defer func() { <-p.slots }()
		if err := p.upload(o); err != nil {
			p.w.cancel(err)
		}
	})
	return nil
}

// seal encrypts a pack's chunks.
func (o *openPack) seal(l *lock) {
	if l == nil {
		return
	}
	a := l.packAEAD(o.id)
	for _, c := range o.chunks {
		sealChunk(a, o.id, *o.data, c.offset, c.size)
	}
	o.chunks = nil
}

// upload encrypts and writes a pack, and completes its entry.
func (p *packer) upload(o *openPack) error {
	failpoint.PackSealed.Hit()
	defer func() {
		packBuffers.Put(o.data)
		o.data = nil
	}()
	o.seal(p.w.lineage.lock)
	data := *o.data
	o.pack = Pack{ID: o.id, Size: int64(len(data)), Digest: p.w.digests.sum(data)}
	if err := p.w.store.sendPack(p.w.ctx, packName(p.w.key.Namespace, o.id), data); err != nil {
		return err
	}
	failpoint.PackCreated.Hit()
	return nil
}

// written returns the packs that were made, by number. It is valid after finish.
func (p *packer) written() []Pack {
	packs := make([]Pack, len(p.packs))
	for i, o := range p.packs {
		packs[i] = o.pack
	}
	return packs
}

// sendPack creates a pack's object, and measures how long that takes.
func (s *Store) sendPack(ctx context.Context, name string, data []byte) error {
	r, done := s.wire.send(bytes.NewReader(data), int64(len(data)))
	defer done()
	return s.backend.Create(ctx, name, r, int64(len(data)))
}

// finish seals the last pack, unless the writer has failed, and waits for all uploads.
func (p *packer) finish() {
	p.mu.Lock()
	if p.open != nil && p.w.ctx.Err() == nil {
		if err := p.seal(); err != nil {
			p.w.cancel(err)
		}
	}
	p.open = nil
	p.mu.Unlock()
	p.uploads.Wait()
}

// remove deletes the packs of a writer that failed, including those that may have been written by
// an upload that reported an error.
func (p *packer) remove(ctx context.Context) {
	failpoint.SnapshotBroken.Hit()
	for _, pack := range p.packs {
		name := packName(p.w.key.Namespace, pack.id)
		if err := p.w.store.backend.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
			p.w.store.log.Warn("a pack of a snapshot that failed is left to the next sweep",
				"snapshot", p.w.key.String(), "object", name, "error", err)
		}
	}
}
