package local

import (
	"sync"
	"time"

	"google.golang.org/grpc"
)

// events sends one stream's events. Whoever has something to tell never waits for the client: a sandbox
// may be paused meanwhile. A client that does not keep up is told the newest progress of each stage;
// what cannot be sent is dropped. The request goes on without its listener. Its methods may be called
// concurrently, flush last and once.
type events[E any] struct {
	stream grpc.ServerStreamingServer[E]
	ended  chan struct{} // closed when the sender has returned
	more   chan struct{} // something has changed

	mu      sync.Mutex
	queue   []*event[E]          // not sent yet, in order
	pending map[string]*event[E] // those of them that are progress, by stage
	stage   string               // of the last progress sent
	sent    time.Time
	closed  bool // nothing is added any more
}

// event is a message on its way; what it says may be replaced until it is sent.
type event[E any] struct {
	stage   string // empty: it is not progress
	message *E
}

// progressEvery is the least time between two events of progress in one stage, except the last.
const progressEvery = 100 * time.Millisecond

func newEvents[E any](stream grpc.ServerStreamingServer[E]) *events[E] {
	e := &events[E]{
		stream: stream, ended: make(chan struct{}), more: make(chan struct{}, 1),
		pending: make(map[string]*event[E]),
	}
	go e.run()
	return e
}

// send has a message sent behind all that was told before.
func (e *events[E]) send(m *E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.add(&event[E]{message: m})
}

// progress has the newest progress of a stage sent, in place of an older one that still waits.
func (e *events[E]) progress(stage string, m *E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if waiting := e.pending[stage]; waiting != nil {
		waiting.message = m
		return
	}
	x := &event[E]{stage: stage, message: m}
	if e.add(x) {
		e.pending[stage] = x
	}
}

// add queues an event, unless the stream has ended. The caller holds the lock.
func (e *events[E]) add(x *event[E]) bool {
	if !e.closed {
		e.queue = append(e.queue, x)
		e.wake()
	}
	return !e.closed
}

func (e *events[E]) wake() {
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// flush returns when everything was sent, or the client is gone.
func (e *events[E]) flush() {
	e.mu.Lock()
	e.closed = true
	e.wake()
	e.mu.Unlock()
	<-e.ended
}

// run sends what is queued until flush is called, or the client is gone.
func (e *events[E]) run() {
	defer close(e.ended)
	for {
		m, wait := e.next()
		if m == nil && wait == 0 {
			return
		}
		if m == nil {
			select {
			case <-e.more:
			case <-time.After(wait):
			}
		} else if e.stream.Send(m) != nil {
			e.drop()
			return
		}
	}
}

// idle is how long the sender sleeps when nothing is queued: something wakes it.
const idle = time.Hour

// next takes the next message that is due. If there is none it returns how long that may take, or 0 if
// none will come.
func (e *events[E]) next() (*E, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 {
		if e.closed {
			return nil, 0
		}
		return nil, idle
	}
	x := e.queue[0]
	due := time.Until(e.sent.Add(progressEvery))
	if x.stage != "" && x.stage == e.stage && due > 0 && len(e.queue) == 1 && !e.closed {
		return nil, due
	}
	e.queue = e.queue[1:]
	if x.stage != "" {
		delete(e.pending, x.stage)
		e.stage, e.sent = x.stage, time.Now()
	}
	return x.message, 0
}

// drop forgets what is queued: the client is gone.
func (e *events[E]) drop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed, e.queue = true, nil
	clear(e.pending)
}
