package storage

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// piece is a chunk that has been read and waits to be decoded.
type piece struct {
	want   *want
	stored []byte  // nil: it could not be read with its neighbours
	buffer *runBuf // that holds stored, or nil
}

// runBuf is the memory of a run, given back when all its chunks are decoded.
type runBuf struct {
	data *[]byte
	left atomic.Int32
}

func (b *runBuf) release() {
	if b != nil && b.left.Add(-1) == 0 {
		runBuffers.Put(b.data)
	}
}

// fetch fetches and decodes all wanted chunks.
func (b *batch) fetch(ctx context.Context) error {
	switch len(b.wants) {
	case 0:
		return ctx.Err()
	case 1:
		w := &b.wants[0]
		return b.complete(w, b.r.load(ctx, w.chunk, w.dst))
	}
	runs := b.runs()
	group, ctx := errgroup.WithContext(ctx)
	pieces := make(chan piece)
	var readers sync.WaitGroup
	var next atomic.Int32
	for range min(len(runs), parallelReads) {
		readers.Add(1)
		group.Go(func() error {
			defer readers.Done()
			for i := next.Add(1) - 1; int(i) < len(runs); i = next.Add(1) - 1 {
				if err := b.read(ctx, &runs[i], pieces); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		readers.Wait()
		close(pieces)
		return nil
	})
	for range min(runtime.GOMAXPROCS(0), len(b.wants)) {
		group.Go(func() error {
			for p := range pieces {
				if err := b.decode(ctx, p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// read reads a run and hands its chunks on. A failure is not the end: each chunk is then looked for
// on its own, in all stores.
func (b *batch) read(ctx context.Context, r *run, pieces chan<- piece) error {
	select {
	case b.r.reads <- struct{}{}:
		defer func() { <-b.r.reads }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s := b.r.preferredStore(r.pack)
	if dst, ok := r.direct(); ok && s != nil && s.readPack(ctx, b.r.m, r.pack, dst, r.from) == nil {
		return b.hand(ctx, r, dst, nil, pieces)
	}
	buffer := &runBuf{data: runBuffers.Get().(*[]byte)}
	data := sized(buffer.data, int(r.to-r.from))
	if s == nil || s.readPack(ctx, b.r.m, r.pack, data, r.from) != nil {
		runBuffers.Put(buffer.data)
		return b.hand(ctx, r, nil, nil, pieces)
	}
	buffer.left.Store(int32(len(r.wants)))
	return b.hand(ctx, r, data, buffer, pieces)
}

// hand hands the chunks of a run to those who decode.
func (b *batch) hand(ctx context.Context, r *run, data []byte, buffer *runBuf, pieces chan<- piece) error {
	for _, w := range r.wants {
		p := piece{want: w, buffer: buffer}
		if data != nil {
			at := int64(w.chunk.Offset) - r.from
			p.stored = data[at : at+int64(w.chunk.Stored)]
		}
		select {
		case pieces <- p:
		case <-ctx.Done():
			return context.Cause(ctx) // the buffer is left to the garbage collector
		}
	}
	return nil
}

func (b *batch) decode(ctx context.Context, p piece) error {
	w := p.want
	if err := ctx.Err(); err != nil {
		return err
	}
	sound := p.stored != nil && b.decodeInto(w, p.stored) == nil
	p.buffer.release()
	if sound {
		return b.complete(w, nil)
	}
	return b.complete(w, b.r.load(ctx, w.chunk, w.dst))
}

// decodeInto decodes a chunk to where it is wanted, if it is not there already.
func (b *batch) decodeInto(w *want, stored []byte) error {
	if &stored[0] == &w.dst[0] {
		return b.r.check(w.chunk, w.dst)
	}
	return b.r.unpack(w.chunk, w.dst, stored)
}

// preferredStore is the store that served a pack last; nil when there is none at all.
func (r *Reader) preferredStore(pack uint32) *Store {
	if len(r.stores) == 0 {
		return nil
	}
	return r.stores[r.good[pack].Load()]
}
