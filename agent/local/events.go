package local

import (
	"sync"
	"time"

	"google.golang.org/grpc"
)

// events sends one stream's events. Its callers never wait for the client, because a sandbox may be paused meanwhile. A
// slow client gets only the newest progress of each stage. If sending fails, the rest is dropped and the request goes
// on without a listener. The methods of events may be called concurrently; flush must be the last call.
type events[E any] struct {
	stream grpc.ServerStreamingServer[E]
	ended  chan struct{} // closed when the sender has returned
	more   chan struct{} // something has changed

	mu      sync.Mutex
	queue   []*event[E]          // not sent yet, in order
	pending map[string]*event[E] // the queued events that are progress, by stage
	stage   string               // of the progress that was sent last
	sent    time.Time
	closed  bool // nothing more is added
}

// event is a queued message. A newer one may replace its content until it is sent.
type event[E any] struct {
	stage   string // empty: it is not progress
	message *E
}

// progressEvery is the least time between two progress events of one stage, except before the last.
const progressEvery = 100 * time.Millisecond

func newEvents[E any](stream grpc.ServerStreamingServer[E]) *events[E] {
	e := &events[E]{
		stream: stream, ended: make(chan struct{}), more: make(chan struct{}, 1),
		pending: make(map[string]*event[E]),
	}
	go e.run()
	return e
}

// send queues a message behind everything that was queued before.
func (e *events[E]) send(m *E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.add(&event[E]{message: m})
}

// progress queues the newest progress of a stage. It replaces older progress of the stage that was not sent yet.
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

// add queues an event, unless the stream has ended. The caller holds e.mu.
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

// flush returns when everything is sent or the client is gone.
func (e *events[E]) flush() {
	e.mu.Lock()
	e.closed = true
	e.wake()
	e.mu.Unlock()
	<-e.ended
}

// run sends the queued events until flush is called and the queue is empty, or the client is gone.
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

// idle is how long the sender sleeps when nothing is queued. A new event wakes it.
const idle = time.Hour

// next takes the next message that is due. If none is due, it returns how long to wait, or 0 if none will come.
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

// drop discards the queue, because the client is gone.
func (e *events[E]) drop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed, e.queue = true, nil
	clear(e.pending)
}
