package storage

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// chunkID identifies a chunk by its content, which has been checked, not by the place that a manifest claims for it.
type chunkID struct {
	digest [32]byte
	raw    uint32
}

// chunkCache keeps decoded chunks in memory for one Reader, and evicts the least recently used first. Concurrent
// readers of one chunk share the load. Data in the cache never changes. (Package storage/cache keeps undecoded blocks
// of packs, on disk.)
type chunkCache struct {
	max int64

	mu      sync.Mutex
	bytes   int64
	entries map[chunkID]*entry
	recent  *list.List // of loaded *entry, the latest in front
}

// entry is a chunk that is loaded or being loaded.
type entry struct {
	at      chunkID
	done    chan struct{} // closed when data and err are set
	data    []byte
	err     error
	element *list.Element // in recent, once loaded
}

func newChunkCache(max int64) *chunkCache {
	return &chunkCache{max: max, entries: map[chunkID]*entry{}, recent: list.New()}
}

// peek returns a chunk's entry if the chunk is loaded or being loaded.
func (c *chunkCache) peek(at chunkID) (*entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[at]
	if ok && e.element != nil {
		c.recent.MoveToFront(e.element)
	}
	return e, ok
}

// loaded returns the data of an entry that has been loaded.
func (e *entry) loaded() ([]byte, bool) {
	select {
	case <-e.done:
		return e.data, e.err == nil
	default:
		return nil, false
	}
}

// get returns a chunk, and calls load if the cache does not have it. Of concurrent callers one loads and the others
// wait. If that one gives up because its context ends, another takes over.
func (c *chunkCache) get(ctx context.Context, at chunkID, load func() ([]byte, error)) ([]byte, error) {
	for {
		e, mine := c.claim(at)
		if mine {
			data, err := load()
			c.fill(e, data, err)
			return data, err
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !errors.Is(e.err, context.Canceled) && !errors.Is(e.err, context.DeadlineExceeded) {
			return e.data, e.err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// claim finds a chunk's entry. If there is none, claim makes one, which the caller must fill.
func (c *chunkCache) claim(at chunkID) (e *entry, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[at]; ok {
		if e.element != nil {
			c.recent.MoveToFront(e.element)
		}
		return e, false
	}
	e = &entry{at: at, done: make(chan struct{})}
	c.entries[at] = e
	return e, true
}

// fill completes a claimed entry. It forgets an entry that failed, so that the next reader retries.
func (c *chunkCache) fill(e *entry, data []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.data, e.err = data, err
	close(e.done)
	if err != nil {
		delete(c.entries, e.at)
		return
	}
	e.element = c.recent.PushFront(e)
	c.bytes += int64(len(data))
	for c.bytes > c.max && c.recent.Len() > 0 {
		c.drop(c.recent.Back().Value.(*entry))
	}
}

// drop removes a chunk. The caller holds c.mu.
func (c *chunkCache) drop(e *entry) {
	c.recent.Remove(e.element)
	delete(c.entries, e.at)
	c.bytes -= int64(len(e.data))
}

func (c *chunkCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.recent.Len() > 0 {
		c.drop(c.recent.Back().Value.(*entry))
	}
}
