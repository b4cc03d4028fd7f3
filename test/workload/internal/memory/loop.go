package memory

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"diapause.dev/test/workload/answers"
)

// lineSize is the size of a line of a processor's cache, in bytes. Of each line that is read, one word is read.
const lineSize = 64

// Touch reads count pages from page first on, one word of each, and returns their exclusive or.
func (m *Memory) Touch(first, count int) (sum uint64, err error) {
	if first < 0 || count < 0 || first > m.Pages() || count > m.Pages()-first {
		return 0, fmt.Errorf("pages %d+%d of %d", first, count, m.Pages())
	}
	for i := first; i < first+count; i++ {
		m.mu.Lock()
		sum ^= binary.LittleEndian.Uint64(m.page(i))
		m.mu.Unlock()
	}
	return sum, nil
}

// ReadPage reads one word of each cache line of page i, and returns their exclusive or.
func (m *Memory) ReadPage(i int) (sum uint64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p := m.page(i)
	for at := 0; at < PageSize; at += lineSize {
		sum ^= binary.LittleEndian.Uint64(p[at:])
	}
	return sum
}

// maxPasses bounds the passes that a Loop remembers: the last ones.
const maxPasses = 1 << 14

// Loop reads all of a memory again and again, and remembers when each pass began and how long it took. Its methods may
// be called from any goroutine.
type Loop struct {
	mu     sync.Mutex
	passes []answers.Pass // a ring; next is the oldest once it is full
	next   int
	sum    uint64 // of all that was read, so that it is read
}

// Run reads the memory until ctx ends.
func (l *Loop) Run(ctx context.Context, m *Memory) {
	for ctx.Err() == nil {
		begin, sum := time.Now(), uint64(0)
		for i := range m.Pages() {
			sum ^= m.ReadPage(i)
		}
		l.note(begin, time.Since(begin), sum)
	}
}

func (l *Loop) note(begin time.Time, took time.Duration, sum uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum ^= sum
	p := answers.Pass{StartUnixNS: begin.UnixNano(), MS: float64(took) / float64(time.Millisecond)}
	if len(l.passes) < maxPasses {
		l.passes = append(l.passes, p)
		return
	}
	l.passes[l.next] = p
	l.next = (l.next + 1) % maxPasses
}

// Report returns the passes in their order. With reset it forgets them.
func (l *Loop) Report(reset bool) answers.Loop {
	l.mu.Lock()
	defer l.mu.Unlock()
	passes := append(append([]answers.Pass{}, l.passes[l.next:]...), l.passes[:l.next]...)
	if reset {
		l.passes, l.next = nil, 0
	}
	return answers.Loop{Passes: passes}
}
