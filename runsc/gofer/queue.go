package gofer

import (
	"sync"
	"time"

	"diapause.dev/runsc/sidecar"
)

// maxQueued bounds the reads that wait for a worker.
const maxQueued = sidecar.MaxFiles * sidecar.MaxParallel

// queue holds reads that wait for a worker. Those that somebody in the sandbox waits for come first. The others come
// one after the other, as far apart as pause says at that time.
type queue struct {
	pause func() time.Duration

	mu      sync.Mutex
	awaited []*readRequest
	ahead   []*readRequest
	taken   time.Time     // when the last of ahead was taken
	changed chan struct{} // closed and replaced with each change
	closed  bool
}

func newQueue(pause func() time.Duration) *queue {
	return &queue{pause: pause, changed: make(chan struct{})}
}

// put adds a read, and reports whether there was room for it.
func (q *queue) put(r *readRequest, awaited bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.awaited)+len(q.ahead) >= maxQueued {
		return false
	}
	if awaited {
		q.awaited = append(q.awaited, r)
	} else {
		q.ahead = append(q.ahead, r)
	}
	q.changeLocked()
	return true
}

// close makes next return nil, now and later.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changeLocked()
}

func (q *queue) changeLocked() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// next waits for the next read and takes it.
func (q *queue) next() *readRequest {
	for {
		pause := q.pause()
		q.mu.Lock()
		r, wait := q.takeLocked(pause)
		changed, closed := q.changed, q.closed
		q.mu.Unlock()
		switch {
		case closed:
			return nil
		case r != nil:
			return r
		case wait == 0:
			<-changed
		default:
			select {
			case <-changed:
			case <-time.After(wait):
			}
		}
	}
}

// takeLocked takes the next read, if there is one whose turn has come. If one must wait, it returns how long.
func (q *queue) takeLocked(pause time.Duration) (r *readRequest, wait time.Duration) {
	if len(q.awaited) > 0 {
		r, q.awaited = q.awaited[0], q.awaited[1:]
		return r, 0
	}
	if len(q.ahead) == 0 {
		return nil, 0
	}
	now := time.Now()
	if wait = pause - now.Sub(q.taken); wait > 0 {
		return nil, wait
	}
	r, q.ahead, q.taken = q.ahead[0], q.ahead[1:], now
	return r, 0
}
