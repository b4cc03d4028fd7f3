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

// Pool bounds the memory that several Readers have together: for decoded chunks, and as much again for what is being
// read. If there are too many decoded chunks, the one goes that none of them has used for the longest time. It is safe
// for concurrent use.
type Pool struct {
	reads  *reads
	mu     sync.Mutex // also that of the pool's caches
	recent recent
}

// NewPool returns a pool of that many bytes of each.
func NewPool(max int64) *Pool { return &Pool{reads: newReads(max), recent: recent{max: max}} }

// Reading returns how many bytes are being read.
func (p *Pool) Reading() int64 { return p.reads.bytes() }

// Bytes returns how many bytes of decoded chunks there are.
func (p *Pool) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recent.bytes
}

// recent are loaded chunks in the order of their last use, the latest in front.
type recent struct {
	max, bytes int64
	list       list.List // of *entry
}

// over returns the chunk that goes next if there are more bytes than there may be, or else nil.
func (r *recent) over() *entry {
	if r.bytes <= r.max || r.list.Len() == 0 {
		return nil
	}
	return r.list.Back().Value.(*entry)
}

func (r *recent) add(e *entry) *list.Element {
	r.bytes += int64(len(e.data))
	return r.list.PushFront(e)
}

func (r *recent) remove(at *list.Element, e *entry) {
	r.list.Remove(at)
	r.bytes -= int64(len(e.data))
}

// chunkCache keeps decoded chunks in memory for one Reader, and evicts the least recently used first, its own and those
// of its pool. Concurrent readers of one chunk share the load. Data in the cache never changes. (Package storage/cache
// keeps undecoded blocks of packs, on disk.)
type chunkCache struct {
	pool *Pool
	max  int64

	// Guarded by the pool's mutex.
	entries map[chunkID]*entry
	recent  recent
	closed  bool // nothing is kept any more
}

// entry is a chunk that is loaded or being loaded.
type entry struct {
	cache *chunkCache
	at    chunkID
	done  chan struct{} // closed when data and err are set
	data  []byte
	err   error

	own, pooled *list.Element // in recent of its cache and of the pool, once loaded
}

// newChunkCache returns a cache of that many bytes. Without a pool it has one of its own.
func newChunkCache(max int64, pool *Pool) *chunkCache {
	if pool == nil {
		pool = NewPool(max)
		pool.reads = newReads(2 * runMemory) // of one namespace, which may have half of it
	}
	return &chunkCache{pool: pool, max: max, entries: map[chunkID]*entry{}, recent: recent{max: max}}
}

// use notes that a chunk is used. The caller holds the pool's mutex.
func (e *entry) use() {
	if e.own != nil {
		e.cache.recent.list.MoveToFront(e.own)
		e.cache.pool.recent.list.MoveToFront(e.pooled)
	}
}

// drop removes a loaded chunk. The caller holds the pool's mutex.
func (e *entry) drop() {
	e.cache.recent.remove(e.own, e)
	e.cache.pool.recent.remove(e.pooled, e)
	delete(e.cache.entries, e.at)
}

// peek returns a chunk's entry if the chunk is loaded or being loaded.
func (c *chunkCache) peek(at chunkID) (*entry, bool) {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	e, ok := c.entries[at]
	if ok {
		e.use()
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
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if e, ok := c.entries[at]; ok {
		e.use()
		return e, false
	}
	e = &entry{cache: c, at: at, done: make(chan struct{})}
	c.entries[at] = e
	return e, true
}

// fill completes a claimed entry. It forgets an entry that failed, so that the next reader retries.
func (c *chunkCache) fill(e *entry, data []byte, err error) {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	e.data, e.err = data, err
	close(e.done)
	if err != nil || c.closed {
		delete(c.entries, e.at)
		return
	}
	e.own, e.pooled = c.recent.add(e), c.pool.recent.add(e)
	for _, r := range []*recent{&c.recent, &c.pool.recent} {
		for old := r.over(); old != nil; old = r.over() {
			old.drop()
		}
	}
}

// close removes all chunks that are loaded, and keeps none from now on.
func (c *chunkCache) close() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.closed = true
	for c.recent.list.Len() > 0 {
		c.recent.list.Back().Value.(*entry).drop()
	}
}
