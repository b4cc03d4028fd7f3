package cache

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxFetch is how many bytes are fetched at a time.
const maxFetch = 8 << 20

// flight is a block that is being fetched from the store. It stays known until its file is written.
type flight struct {
	done chan struct{} // closed when data and err are set
	data []byte
	err  error
}

// state is where a reader has found a block.
type state struct {
	id     id
	size   int64 // bytes of the block
	hit    bool  // on disk
	mine   bool  // this reader must fetch it
	flight *flight
}

// Fetch fills p with an object's bytes from off on, from the store.
type Fetch = func(ctx context.Context, p []byte, off int64) error

// ReadAt implements storage.PackCache.
func (c *Cache) ReadAt(ctx context.Context, object string, size int64, p []byte, off int64, fetch Fetch) error {
	if off < 0 || off+int64(len(p)) > size || len(p) == 0 {
		return fetch(ctx, p, off) // let the store say what is wrong
	}
	first, last := off/blockSize, (off+int64(len(p))-1)/blockSize
	states := c.claim(object, size, first, last)
	if err := c.fetch(ctx, object, states, fetch); err != nil {
		return err
	}
	for i := range states {
		s := &states[i]
		from := max(off, s.id.index*blockSize)
		to := min(off+int64(len(p)), s.id.index*blockSize+s.size)
		at := from - s.id.index*blockSize
		if err := c.copy(ctx, object, s, p[from-off:to-off], at, fetch); err != nil {
			return err
		}
	}
	return nil
}

// claim says of each block where it is. The caller must fetch those that are nowhere.
func (c *Cache) claim(object string, size, first, last int64) []state {
	states := make([]state, 0, last-first+1)
	at := newID(object, first)
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; at.index <= last; at.index++ {
		s := state{id: at, size: min(blockSize, size-at.index*blockSize)}
		if s.flight = c.flights[at]; s.flight == nil {
			if e := c.entries[at]; e != nil {
				s.hit = true
				c.recent.MoveToFront(e.element)
			} else {
				s.mine, s.flight = true, &flight{done: make(chan struct{})}
				c.flights[at] = s.flight
			}
		}
		states = append(states, s)
	}
	return states
}

// fetch fetches the claimed blocks, neighbours together. It completes each flight, whatever happens.
func (c *Cache) fetch(ctx context.Context, object string, states []state, fetch Fetch) (failed error) {
	for len(states) > 0 {
		n := 0
		var size int64
		for n < len(states) && states[n].mine && size < maxFetch {
			size += states[n].size
			n++
		}
		if n == 0 {
			states = states[1:]
			continue
		}
		run := states[:n]
		states = states[n:]
		data := make([]byte, size)
		err := failed
		if err == nil {
			err = fetch(ctx, data, run[0].id.index*blockSize)
		}
		failed = err
		c.land(object, run, data, err)
	}
	return failed
}

// land hands fetched blocks to their waiting readers, and then writes them to the disk.
func (c *Cache) land(object string, run []state, data []byte, err error) {
	for i := range run {
		f := run[i].flight
		if f.err = err; err == nil {
			f.data, data = data[:run[i].size:run[i].size], data[run[i].size:]
		}
		close(f.done)
	}
	for i := range run {
		s := &run[i]
		var e *entry
		if err == nil {
			e = c.keep(object, s.id, s.flight.data)
		}
		c.mu.Lock()
		delete(c.flights, s.id)
		if e != nil {
			c.insert(e)
		}
		c.mu.Unlock()
	}
}

// keep writes a block to disk. If that fails, it returns nil: a cache may be full or broken.
func (c *Cache) keep(object string, at id, data []byte) *entry {
	if int64(len(data))+trailer > c.max {
		return nil
	}
	if err := c.write(object, at, data); err != nil {
		c.log.Warn("block not kept", "object", object, "error", err)
		return nil
	}
	return &entry{id: at, size: int64(len(data)) + trailer, touched: time.Now()}
}

// copy fills p with the block's bytes from its byte at on.
func (c *Cache) copy(ctx context.Context, object string, s *state, p []byte, at int64, fetch Fetch) error {
	for {
		switch {
		case s.hit:
			data, err := c.read(object, s.id, s.size)
			if err == nil {
				copy(p, data[at:])
				c.recycle(data)
				return nil
			}
			c.log.Warn("block of the cache is fetched again", "object", object, "error", err)
			c.Drop(object, s.id.index*blockSize, s.size)
		case !s.mine:
			select {
			case <-s.flight.done:
			case <-ctx.Done():
				return fmt.Errorf("wait for a block of %s: %w", object, context.Cause(ctx))
			}
			fallthrough
		default:
			if err := s.flight.err; err == nil {
				copy(p, s.flight.data[at:])
				return nil
			} else if s.mine || !cancelled(err) {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		again := c.claim(object, s.id.index*blockSize+s.size, s.id.index, s.id.index)
		*s = again[0]
		if err := c.fetch(ctx, object, again, fetch); err != nil {
			return err
		}
	}
}

// cancelled reports whether a fetch failed only because the reader that fetched gave up.
func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
