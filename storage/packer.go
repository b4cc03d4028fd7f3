package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/format"
)

// packer lays chunks into packs in the order in which they were added, so that neighbours in a file are neighbours in a
// pack. The backend reads a pack while the packer fills it.
type packer struct {
	ctx      context.Context // the writer's; its cause is the first failure
	fail     context.CancelCauseFunc
	objects  *objects
	key      Key // of the snapshot
	lineage  *lineage
	packSize int64                   // size past which a pack does not grow
	progress func(raw, stored int64) // or nil
	settle   func(*placement, Chunk) // is called with each chunk that is placed

	uploads sync.WaitGroup
	most    int   // limit of packs under way
	memory  int64 // limit of bytes held by pieces

	mu       sync.Mutex
	wake     sync.Cond            // room, something to read, a pack written, or the writer's end
	waiting  map[uint64]placement // ready before their turn
	next     uint64               // the chunk whose turn it is
	laying   bool                 // a worker lays chunks; only one may at a time
	open     *openPack            // being filled, or nil
	active   int                  // packs under way
	held     int64                // bytes of memory of pieces that the backend has not read
	raw, out int64                // for Progress

	packs []*openPack // by number
}

// placement is a chunk that is ready and waits for its turn to be placed.
type placement struct {
	job
	chunk  Chunk                  // complete except for pack, offset and stored length, unless placed
	placed bool                   // it has no bytes to store: it is zero, or stored already
	print  [format.PrintSize]byte // or zero, if none is needed
	stored []byte                 // the bytes to store, unless placed
	buffer *[]byte                // to be returned to its pool, or nil
}

func newPacker(ctx context.Context, fail context.CancelCauseFunc, all *objects, key Key, l *lineage, o WriterOptions,
	settle func(*placement, Chunk),
) *packer {
	p := &packer{
		ctx: ctx, fail: fail, objects: all, key: key, lineage: l, packSize: o.PackSize, progress: o.Progress,
		settle: settle, waiting: map[uint64]placement{},
	}
	p.most, p.memory = o.uploads()
	p.wake.L = &p.mu
	return p
}

// uploads returns how many packs may be under way, and the memory for data of them that the backend has not read. An
// eighth of all memory is for chunks, and a backend may keep a copy of what it has read.
func (o WriterOptions) uploads() (packs int, memory int64) {
	memory = max((o.Memory-o.Memory/8)/2, MaxChunk)
	return 1 + int(memory/o.PackSize), memory
}

// stir wakes all who wait, since the context has ended.
func (p *packer) stir() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake.Broadcast()
}

// place takes a chunk. If it is the chunk's turn, place lays it into a pack, and after it the chunks that waited for
// it. If another worker is laying, or another chunk's turn comes first, the chunk waits. place blocks while there is no
// memory for more.
func (p *packer) place(pl placement) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.laying || pl.seq != p.next {
		p.waiting[pl.seq] = pl
		return nil
	}
	p.laying = true
	defer func() { p.laying = false }()
	for turn := true; turn; pl, turn = p.waiting[p.next] {
		delete(p.waiting, p.next)
		p.next++
		if err := p.lay(&pl); err != nil {
			return err
		}
	}
	return nil
}

// lay places one chunk. The caller holds p.mu.
func (p *packer) lay(pl *placement) error {
	c := pl.chunk
	if !pl.placed {
		known, ok := p.lineage.find(c.Digest, c.Raw) // an equal chunk of this snapshot may have been stored meanwhile
		if ok {
			c = known
		} else if err := p.store(&c, pl); err != nil {
			return err
		}
		putBuffer(pl.buffer)
	}
	p.settle(pl, c)
	p.raw += int64(c.Raw)
	if p.progress != nil {
		p.progress(p.raw, p.out)
	}
	return nil
}

// store appends a chunk's bytes to the open pack and records in c where they are. The caller holds p.mu.
func (p *packer) store(c *Chunk, pl *placement) error {
	add := piece{data: pl.stored, held: int64(len(pl.stored))}
	if pl.buffer != nil {
		add.buffer, add.held = pl.buffer, int64(cap(*pl.buffer))
	}
	if p.lineage.lock != nil {
		add.seal, add.data = true, pl.stored[:len(pl.stored)+format.SealSize]
	}
	if err := p.room(len(add.data), add.held); err != nil {
		return err
	}
	c.Pack = p.lineage.inherited() + uint32(p.open.number)
	c.Offset, c.Stored = uint32(p.open.size), uint32(len(add.data))
	p.open.append(add)
	pl.buffer = nil // the pack owns it now
	p.out += int64(len(pl.stored))
	p.lineage.add(*c)
	return nil
}

// room makes sure that there is an open pack with room for n bytes, and waits until there is memory for held bytes.
// The caller holds p.mu.
func (p *packer) room(n int, held int64) error {
	if p.open != nil && int64(p.open.size+n) > p.packSize {
		p.close()
	}
	if p.open == nil {
		if err := p.await(func() bool { return p.active < p.most }); err != nil {
			return err
		}
		p.newPack()
	}
	return p.await(func() bool {
		if p.held == 0 || p.held+held <= p.memory {
			return true
		}
		p.open.urge()
		return false
	})
}

// await waits until ready returns true, or the writer ends. The caller holds p.mu, which await unlocks meanwhile.
func (p *packer) await(ready func() bool) error {
	for p.ctx.Err() == nil {
		if ready() {
			return nil
		}
		p.wake.Wait()
	}
	return context.Cause(p.ctx)
}

// newPack opens a pack and makes the backend start to read it. The caller holds p.mu.
func (p *packer) newPack() {
	o := &openPack{p: p, id: format.NewPackID(), number: len(p.packs), upload: p.objects.writes.begin()}
	p.packs = append(p.packs, o)
	p.open = o
	o.append(piece{data: format.PackHeader(o.id)})
	p.active++
	p.uploads.Go(func() {
		err := p.upload(o)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.active--
		p.wake.Broadcast()
		if err != nil {
			p.fail(err)
		}
	})
}

// close ends the open pack, if there is one. The caller holds p.mu.
func (p *packer) close() {
	if p.open == nil {
		return
	}
	p.open.closed = true
	p.open.urgent = true
	p.wake.Broadcast()
	p.open = nil
}

// upload writes a pack while it is being filled.
func (p *packer) upload(o *openPack) error {
	defer o.upload.end()
	err := p.objects.backend.Create(p.ctx, format.PackName(p.key.Namespace, o.id), o, -1)
	if err == nil && o.pack.Size == 0 {
		err = fmt.Errorf("create %s: %w: not read to its end", format.PackName(p.key.Namespace, o.id), ErrTruncated)
	}
	if err != nil {
		return err
	}
	failpoint.PackCreated.Hit()
	return nil
}

// written returns the packs that were made, by number. Those that were made since finish are not complete.
func (p *packer) written() []Pack {
	p.mu.Lock()
	defer p.mu.Unlock()
	packs := make([]Pack, len(p.packs))
	for i, o := range p.packs {
		packs[i] = o.pack
	}
	return packs
}

// finish ends the last pack and waits for all uploads.
func (p *packer) finish() {
	p.mu.Lock()
	p.close()
	p.mu.Unlock()
	p.uploads.Wait()
}

// remove deletes those packs that nobody needs. An upload that reported an error may still have written its pack, so
// remove deletes such packs, too.
func (p *packer) remove(ctx context.Context, unneeded func(PackID) bool) {
	for _, pack := range p.packs {
		if !unneeded(pack.id) {
			continue
		}
		name := format.PackName(p.key.Namespace, pack.id)
		if err := p.objects.backend.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
			p.objects.log.Warn("a pack that no snapshot needs is left to the next sweep",
				"snapshot", p.key.String(), "object", name, "error", err)
		}
	}
}
