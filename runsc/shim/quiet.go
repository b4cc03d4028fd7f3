package shim

import (
	"context"
	"fmt"
	"sync"
)

// quiet are the containers of this process whose exit is not reported, because their pod falls asleep.
var quiet quietExits

// quietExits takes exits out of the exit stream. Its methods may be called concurrently.
type quietExits struct {
	mu      sync.Mutex
	all     map[string]chan struct{} // by container id; closed when the exit was taken
	streams map[string]*streams      // of containers that have slept; closed when they really exit
}

// expect makes the next exit of a container one that is not reported.
func (q *quietExits) expect(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all == nil {
		q.all = make(map[string]chan struct{})
	}
	q.all[id] = make(chan struct{})
}

// forget undoes expect.
func (q *quietExits) forget(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.all, id)
}

// take reports whether an exit that has just happened is one that is not reported.
func (q *quietExits) take(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.all[id]
	if taken == nil {
		return false
	}
	select {
	case <-taken: // the one that was expected is over: this one is another
		return false
	default:
		close(taken)
		return true
	}
}

// settled waits until the exit that was expected of a container was taken.
func (q *quietExits) settled(ctx context.Context, id string) error {
	q.mu.Lock()
	taken := q.all[id]
	q.mu.Unlock()
	if taken == nil {
		return nil
	}
	select {
	case <-taken:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("container %s: wait for the end of its process: %w", id, context.Cause(ctx))
	}
}

// keep keeps the standard streams of a container open until exited is called for it.
func (q *quietExits) keep(id string, s *streams) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.streams == nil {
		q.streams = make(map[string]*streams)
	}
	q.streams[id] = s
}

// exited closes what was kept open for a container that has ended.
func (q *quietExits) exited(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.streams[id]; s != nil {
		s.Close()
		delete(q.streams, id)
	}
}
