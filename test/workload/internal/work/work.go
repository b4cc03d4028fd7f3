// Package work keeps threads busy with one kind of work, and notes how far they have come, so that it can be told later
// how fast they were at any time.
package work

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"diapause.dev/test/workload/answers"
)

const (
	// tick is how often the progress is noted.
	tick = 20 * time.Millisecond
	// maxNotes bounds what is kept: the last five minutes or so.
	maxNotes = 1 << 14
)

// Meter notes the progress of work. Its methods may be called from any goroutine, but Run by one at a time.
type Meter struct {
	mu    sync.Mutex
	notes []answers.Done // a ring; next is the oldest once it is full
	next  int
}

// counter is that of one thread. It has a line of the processor's cache for itself.
type counter struct {
	done atomic.Int64
	_    [56]byte
}

// Run has so many threads do pieces of work until ctx ends. A thread calls piece with the number of the piece, of which
// it does each threads-th one.
func (m *Meter) Run(ctx context.Context, threads int, piece func(i int)) {
	counters := make([]counter, threads)
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for i := t; ctx.Err() == nil; i += threads {
				piece(i)
				counters[t].done.Add(1)
			}
		})
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for ctx.Err() == nil {
		m.note(counters)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	wg.Wait()
}

func (m *Meter) note(counters []counter) {
	done := answers.Done{UnixNS: time.Now().UnixNano()}
	for i := range counters {
		done.Pieces += counters[i].done.Load()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.notes) < maxNotes {
		m.notes = append(m.notes, done)
		return
	}
	m.notes[m.next] = done
	m.next = (m.next + 1) % maxNotes
}

// Report returns the notes in their order. With reset it forgets them.
func (m *Meter) Report(reset bool) answers.Work {
	m.mu.Lock()
	defer m.mu.Unlock()
	notes := append(append([]answers.Done{}, m.notes[m.next:]...), m.notes[:m.next]...)
	if reset {
		m.notes, m.next = nil, 0
	}
	return answers.Work{Notes: notes}
}
