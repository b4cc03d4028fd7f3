package storage

import (
	"context"
	"sync"
)

// reads bounds the bytes of all runs under way of the Readers of a Pool. What is read of a namespace may have as many
// as are free. So n namespaces whose stores hang hold at most n parts of n+1, and others still read. It is safe for
// concurrent use.
type reads struct {
	mu        sync.Mutex
	max, used int64
	by        map[string]int64 // bytes by namespace
	freed     chan struct{}    // closed when bytes are released; nil: nobody waits
}

func newReads(max int64) *reads {
	return &reads{max: max, by: make(map[string]int64)}
}

// acquire waits until a namespace may have n more bytes. It returns nil, or why ctx has ended.
func (r *reads) acquire(ctx context.Context, namespace string, n int64) error {
	for {
		freed := r.try(namespace, n)
		if freed == nil {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// try returns nil if a namespace has got n more bytes, or else what is closed when there may be some.
func (r *reads) try(namespace string, n int64) (freed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by[namespace]+n > r.max-r.used && r.used > 0 {
		if r.freed == nil {
			r.freed = make(chan struct{})
		}
		return r.freed
	}
	r.used += n
	r.by[namespace] += n
	return nil
}

func (r *reads) release(namespace string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	if r.by[namespace] -= n; r.by[namespace] == 0 {
		delete(r.by, namespace)
	}
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

func (r *reads) bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}
