package gofer

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"diapause.dev/runsc/sidecar"
)

// maxQueued bounds the reads that wait for a worker.
const maxQueued = sidecar.MaxFiles * sidecar.MaxParallel

// Pace says how a sandbox loads its memory ahead of need, at this time.
type Pace struct {
	// Pause is from the beginning of one read to that of the next. Meanwhile what somebody needs goes faster. But the
	// sandbox asks for what it needs only after the end of another read, so it waits for that, too. 0: no pause.
	Pause time.Duration
	// Turns means that processors limit the reads, and not a wire. Then at most half of the processors work on such
	// reads, for all sandboxes together.
	Turns bool
	// Held holds such reads until it is closed. Nil: they are not held.
	Held <-chan struct{}
	// GivesWay means that the source's Rest says how long each read ahead of need is followed by none.
	GivesWay bool
}

// turnTime is how long a read keeps its turn. One that takes longer waits for a disk or a store, and not for a
// processor.
const turnTime = 250 * time.Millisecond

// turns are taken by reads ahead of need that processors limit, and given back. There are as many as its capacity.
type turns chan struct{}

func newTurns() turns { return make(turns, max(1, runtime.GOMAXPROCS(0)/2)) }

// giveBack returns a function that gives a turn back, which happens after turnTime at the latest.
func (t turns) giveBack() (done func()) {
	give := sync.OnceFunc(func() { <-t })
	late := time.AfterFunc(turnTime, give)
	return func() {
		late.Stop()
		give()
	}
}

// queue holds reads that wait for a worker. Those that somebody in the sandbox waits for come first.
type queue struct {
	pace  func(*readRequest) Pace // for a read ahead of need
	rest  func(took time.Duration) time.Duration
	turns turns

	mu      sync.Mutex
	awaited []*readRequest
	ahead   []*readRequest
	taken   time.Time     // when the last of ahead was taken
	rested  time.Time     // when the next of ahead may be taken by a pace that gives way
	changed chan struct{} // closed and replaced with each change
	closed  bool
}

// newQueue returns an empty queue. Its functions are those of a Source.
func newQueue(pace func(*readRequest) Pace, rest func(took time.Duration) time.Duration, t turns) *queue {
	return &queue{pace: pace, rest: rest, turns: t, changed: make(chan struct{})}
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

// hasten has reads ahead of need of a part of a file carried out as if somebody waited for them, and returns them.
// Those that have been taken are under way.
func (q *queue) hasten(file string, off, n int64) (late []*readRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ahead = slices.DeleteFunc(q.ahead, func(r *readRequest) bool {
		hit := r.file.name == file && r.off < off+n && off < r.off+r.total
		if hit {
			late = append(late, r)
		}
		return hit
	})
	if len(late) > 0 {
		q.awaited = append(q.awaited, late...)
		q.changeLocked()
	}
	return late
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

// next waits for the next read and takes it. The caller calls done when the read is over. After close there is none.
func (q *queue) next() (r *readRequest, done func()) {
	for {
		r, turn, changed, held, wait := q.look()
		switch {
		case r != nil:
			return r, func() {}
		case changed == nil:
			return nil, nil
		}
		select {
		case <-changed:
		case <-held:
		case <-wait:
		case turn <- struct{}{}:
			if r := q.take(); r != nil {
				return r, q.giveWay(r, turn.giveBack())
			}
			<-turn
		}
	}
}

// look takes the next read if it may be taken at once. Otherwise it returns what to wait for: a turn, a change, that
// reads are no longer held, the end of a pause. No change means that the queue is closed.
func (q *queue) look() (r *readRequest, turn turns, changed chan struct{}, held <-chan struct{},
	wait <-chan time.Time,
) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, nil, nil, nil, nil
	}
	if len(q.awaited) > 0 {
		r, q.awaited = q.awaited[0], q.awaited[1:]
		return r, nil, nil, nil, nil
	}
	if len(q.ahead) == 0 {
		return nil, nil, q.changed, nil, nil
	}
	pace := q.pace(q.ahead[0])
	if pace.Held != nil {
		return nil, nil, q.changed, pace.Held, nil
	}
	left := pace.Pause - time.Since(q.taken)
	if pace.GivesWay {
		left = max(left, time.Until(q.rested))
	}
	if left > 0 {
		return nil, nil, q.changed, nil, time.After(left)
	}
	if pace.Turns {
		return nil, q.turns, q.changed, nil, nil
	}
	return q.takeLocked(), nil, nil, nil, nil
}

// giveWay returns a function that ends a read ahead of need by calling over, and then has the next one wait.
func (q *queue) giveWay(r *readRequest, over func()) (done func()) {
	begun := time.Now()
	return func() {
		over()
		if !q.pace(r).GivesWay {
			return
		}
		rested := time.Now().Add(q.rest(time.Since(begun)))
		q.mu.Lock()
		defer q.mu.Unlock()
		q.rested = rested
	}
}

// take takes a read ahead of need, or returns nil if there is none any longer or there is need now.
func (q *queue) take() *readRequest {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.awaited) > 0 || len(q.ahead) == 0 {
		return nil
	}
	return q.takeLocked()
}

func (q *queue) takeLocked() (r *readRequest) {
	r, q.ahead, q.taken = q.ahead[0], q.ahead[1:], time.Now()
	return r
}
