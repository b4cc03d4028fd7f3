package storage

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"diapause.dev/storage/failpoint"
)

// uploads is how many sealed packs a writer writes at a time; one more is being filled. With packs
// of PackTarget it bounds a writer's memory, beside the raw chunks which are the caller's.
const uploads = 3

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

	packs []Pack // new ones by number; complete after finish
}

// openPack is a pack in memory.
type openPack struct {
	id     PackID
	number int     // in packer.packs
	data   *[]byte // header and frames
}

func newPacker(w *Writer) *packer {
	return &packer{w: w, slots: make(chan struct{}, uploads), waiting: map[uint64]placement{}}
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
	if p.open != nil && len(*p.open.data)+len(data) > PackTarget {
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
	*buf = append(roomFor(*buf, len(data)), data...)
	p.out += int64(len(data))
	p.w.lineage.add(*c)
	return nil
}

// roomFor gives a pack's buffer room for n more bytes, doubling it, so that a small snapshot needs
// little and a large one copies little.
func roomFor(buf []byte, n int) []byte {
	if len(buf)+n <= cap(buf) {
		return buf
	}
	larger := make([]byte, len(buf), min(max(2*cap(buf), len(buf)+n, MaxChunk), PackTarget))
	copy(larger, buf)
	return larger
}

func (p *packer) newPack() *openPack {
	o := &openPack{id: newPackID(), number: len(p.packs), data: packBuffers.Get().(*[]byte)}
	*o.data = append((*o.data)[:0], packHeader(o.id)...)
	p.packs = append(p.packs, Pack{ID: o.id})
	return o
}

// seal hands the open pack to an upload, when there is a slot for it.
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

// upload writes a pack and completes its entry.
func (p *packer) upload(o *openPack) error {
	defer packBuffers.Put(o.data)
	failpoint.PackSealed.Hit()
	data := *o.data
	pack := Pack{ID: o.id, Size: int64(len(data)), Digest: p.w.digests.sum(data)}
	s := p.w.store
	if err := s.backend.Create(p.w.ctx, packName(p.w.key.Namespace, o.id), bytes.NewReader(data), pack.Size); err != nil {
		return err
	}
	failpoint.PackCreated.Hit()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packs[o.number] = pack
	return nil
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
		name := packName(p.w.key.Namespace, pack.ID)
		if err := p.w.store.backend.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
			p.w.store.log.Warn("a pack of a snapshot that failed is left to the next sweep",
				"snapshot", p.w.key.String(), "object", name, "error", err)
		}
	}
}
