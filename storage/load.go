package storage

import (
	"context"
	"errors"
	"fmt"
)

// preferredStore returns the store that served a pack last, or nil if the Reader has no store.
func (r *Reader) preferredStore(pack uint32) *objects {
	if len(r.stores) == 0 {
		return nil
	}
	return r.stores[r.good[pack].Load()]
}

// speed returns the read speed of the store that a pack is read from.
func (r *Reader) speed(pack uint32) *readSpeed {
	if s := r.preferredStore(pack); s != nil {
		return &s.reads
	}
	return &readSpeed{}
}

// load fills dst, of the chunk's raw length, from the first store that has the chunk undamaged.
func (r *Reader) load(ctx context.Context, c *Chunk, dst []byte) error {
	var errs []error
	last := int(r.good[c.Pack].Load())
	for i := range r.stores {
		i = preferred(i, last)
		err := r.loadFrom(ctx, r.stores[i], c, dst)
		if err == nil {
			if i != last {
				r.good[c.Pack].Store(int32(i))
			}
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		errs = append(errs, fmt.Errorf("from %s: %w", r.stores[i].location(), err))
	}
	if len(errs) == 0 {
		return fmt.Errorf("no store to read from: %w", ErrNotFound)
	}
	return errors.Join(errs...)
}

// preferred returns the index of the i-th store to try if the store with index first comes before all others.
func preferred(i, first int) int {
	switch {
	case i == 0:
		return first
	case i <= first:
		return i - 1
	}
	return i
}

func (r *Reader) loadFrom(ctx context.Context, s *objects, c *Chunk, dst []byte) error {
	err := r.loadBy(ctx, s.readPack, c, dst)
	if errors.Is(err, ErrCorrupt) && s.cache != nil {
		s.cache.Drop(r.m.PackObject(c.Pack), int64(c.Offset), int64(c.Stored))
		return r.loadBy(ctx, s.readPackUncached, c, dst)
	}
	return err
}

// packRead reads from a pack of m.
type packRead func(ctx context.Context, m *Manifest, i uint32, p []byte, off int64) error

func (r *Reader) loadBy(ctx context.Context, read packRead, c *Chunk, dst []byte) error {
	if c.Codec == CodecNone && r.m.DataKey == nil {
		if err := read(ctx, r.m, c.Pack, dst, int64(c.Offset)); err != nil {
			return err
		}
		return r.opener.Check(c, dst)
	}
	buffer := getBuffer()
	defer putBuffer(buffer)
	stored := sized(buffer, int(c.Stored))
	if err := read(ctx, r.m, c.Pack, stored, int64(c.Offset)); err != nil {
		return err
	}
	return r.opener.Unpack(c, dst, stored)
}
