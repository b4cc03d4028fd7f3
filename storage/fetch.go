package storage

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// finish fetches the wanted chunks. Only then does it wait for chunks that others fetch, so that two batches never wait
// for each other.
func (b *batch) finish(ctx context.Context) error {
	if err := b.fetch(ctx); err != nil {
		return err
	}
	for i := range b.waits {
		w := &b.waits[i]
		data, err := b.r.cache.get(ctx, chunkID{w.chunk.Digest, w.chunk.Raw}, func() ([]byte, error) {
			data := make([]byte, w.chunk.Raw)
			return data, b.r.load(ctx, w.chunk, data)
		})
		if err != nil {
			return fmt.Errorf("chunk %d: %w", w.index, err)
		}
		w.copy(data)
	}
	return nil
}

// fetch fetches and decodes all wanted chunks.
func (b *batch) fetch(ctx context.Context) error {
	switch len(b.wants) {
	case 0:
		return ctx.Err()
	case 1:
		w := &b.wants[0]
		w.make()
		return b.complete(w, b.r.load(ctx, w.chunk, w.dst))
	}
	runs := b.runs()
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int32
	for range b.r.speed(runs[0].pack).inFlight(runs) {
		group.Go(func() error {
			for i := next.Add(1) - 1; int(i) < len(runs); i = next.Add(1) - 1 {
				if err := b.fetchRun(ctx, &runs[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// runMemory bounds the bytes of all runs of a Reader that are in memory at a time; its Pool bounds those of all
// Readers. A short run counts as runWeight, which bounds the number of requests under way.
const (
	runMemory = 64 << 20
	runWeight = runMemory / mostReads
)

// fetchRun reads a run and decodes its chunks in the same goroutine, while the data is still in the processor's cache.
// If a read or a decode fails, each affected chunk is then looked for on its own, in all stores.
func (b *batch) fetchRun(ctx context.Context, r *run) error {
	weight := max(r.to-r.from, runWeight)
	if err := b.r.runs.Acquire(ctx, weight); err != nil {
		return context.Cause(ctx)
	}
	defer b.r.runs.Release(weight)
	reads, namespace := b.r.cache.pool.reads, b.r.m.Meta.Namespace
	if err := reads.acquire(ctx, namespace, weight); err != nil {
		return err
	}
	defer reads.release(namespace, weight)
	s := b.r.preferredStore(r.pack)
	if s == nil {
		return b.decode(ctx, r, nil)
	}
	if dst, ok := r.direct(); ok && s.readPack(ctx, b.r.m, r.pack, dst, r.from) == nil {
		return b.decode(ctx, r, dst)
	}
	buffer := runBuffers.Get().(*[]byte)
	defer runBuffers.Put(buffer)
	data := sized(buffer, int(r.to-r.from))
	if s.readPack(ctx, b.r.m, r.pack, data, r.from) != nil {
		data = nil
	}
	return b.decode(ctx, r, data)
}

// decode decodes the chunks of a run. data is nil if the run could not be read.
func (b *batch) decode(ctx context.Context, r *run, data []byte) error {
	for _, w := range r.wants {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.make()
		at := int64(w.chunk.Offset) - r.from
		if data != nil && b.decodeInto(w, data[at:at+int64(w.chunk.Stored)]) == nil {
			if err := b.complete(w, nil); err != nil {
				return err
			}
		} else if err := b.complete(w, b.r.load(ctx, w.chunk, w.dst)); err != nil {
			return err
		}
	}
	return nil
}

// decodeInto decodes a chunk to where it is wanted. If the chunk is already there, decodeInto only checks it.
func (b *batch) decodeInto(w *want, stored []byte) error {
	if &stored[0] == &w.dst[0] {
		return b.r.opener.Check(w.chunk, w.dst)
	}
	return b.r.opener.Unpack(w.chunk, w.dst, stored)
}
