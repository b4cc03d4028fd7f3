package budget

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

// Memory is the agent's memory that all checkpoints under way may hold together. Its methods may be called
// concurrently.
//
// A checkpoint that finds no room waits. Room goes to the namespace that holds the least of all those that wait. If
// several hold as little, it goes to the one that was served longest ago; in a namespace, to the checkpoint that came
// first. Nobody overtakes the one whose turn it is: a large one does not starve.
type Memory struct {
	total   int64
	changed func(held int64, waiting int)

	mu      sync.Mutex
	held    map[string]int64 // bytes, by namespace; no entry is 0
	taken   int64            // their sum
	waiting []*claim         // in order of arrival
	served  map[string]int   // the turn in which each namespace was last given something
	turns   int
}

// claim is a checkpoint that waits for memory.
type claim struct {
	namespace string
	bytes     int64
	granted   chan struct{} // closed when it has them
}

// NewMemory returns a budget of total bytes. It calls changed with each change: how many bytes checkpoints hold, and
// how many checkpoints wait. Changed must not block.
func NewMemory(total int64, changed func(held int64, waiting int)) *Memory {
	return &Memory{total: total, changed: changed, held: make(map[string]int64), served: make(map[string]int)}
}

// Take waits until there is room for n bytes, and returns them as a share of a namespace. If it has to wait, it calls
// waits first. A share that can never fit is refused at once. If ctx is done first, the error says what was waited for.
func (m *Memory) Take(ctx context.Context, namespace string, n int64, waits func()) (*Share, error) {
	if n > m.total {
		return nil, refuse(memoryName, "it takes %s of the agent's memory, and all checkpoints together may take %s: raise "+
			"--checkpoint-memory and the agent's memory limit, or lower --arena", mib(n), mib(m.total))
	}
	c := &claim{namespace: namespace, bytes: n, granted: make(chan struct{})}
	m.mu.Lock()
	m.waiting = append(m.waiting, c)
	m.grant()
	m.mu.Unlock()
	select {
	case <-c.granted:
	default:
		waits()
		select {
		case <-c.granted:
		case <-ctx.Done():
			return nil, m.giveUp(ctx, c)
		}
	}
	return &Share{m: m, namespace: namespace, bytes: n}, nil
}

// giveUp takes back a claim. It returns the reason for the caller.
func (m *Memory) giveUp(ctx context.Context, c *claim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := refuse(memoryName, "it waited for %s of the agent's memory; checkpoints hold %s of %s, and %d wait: try again "+
		"later, or raise --checkpoint-memory and the agent's memory limit", mib(c.bytes), mib(m.taken), mib(m.total),
		len(m.waiting))
	if i := slices.Index(m.waiting, c); i >= 0 {
		m.waiting = slices.Delete(m.waiting, i, i+1)
	} else {
		m.add(c.namespace, -c.bytes) // it was granted meanwhile
	}
	m.grant()
	return fmt.Errorf("%w: %w", err, context.Cause(ctx))
}

// grant gives room to claims as long as the one whose turn it is fits. The caller holds m.mu.
func (m *Memory) grant() {
	for len(m.waiting) > 0 {
		i := m.next()
		c := m.waiting[i]
		if m.taken+c.bytes > m.total {
			break
		}
		m.waiting = slices.Delete(m.waiting, i, i+1)
		m.add(c.namespace, c.bytes)
		m.turns++
		m.served[c.namespace] = m.turns
		close(c.granted)
	}
	if m.taken == 0 {
		clear(m.served) // nobody waits either
	}
	m.changed(m.taken, len(m.waiting))
}

// next returns the place of the claim whose turn it is. The caller holds m.mu, and at least one claim waits.
func (m *Memory) next() (first int) {
	for i, c := range m.waiting {
		if m.before(c.namespace, m.waiting[first].namespace) {
			first = i
		}
	}
	return first
}

// before reports whether one namespace is served before another. The caller holds m.mu.
func (m *Memory) before(one, other string) bool {
	return cmp.Or(cmp.Compare(m.held[one], m.held[other]), cmp.Compare(m.served[one], m.served[other])) < 0
}

// add changes what a namespace holds. The caller holds m.mu.
func (m *Memory) add(namespace string, n int64) {
	m.taken += n
	m.held[namespace] += n
	if m.held[namespace] == 0 {
		delete(m.held, namespace)
	}
}

// Share is what one checkpoint holds of the budget. It belongs to one goroutine at a time, except that Grow may be
// called concurrently.
type Share struct {
	m         *Memory
	namespace string
	bytes     int64 // guarded by m.mu
}

// Grow takes n more bytes at once, or refuses. It does not wait, since the sandbox is paused, and it takes what is free
// even if others wait.
func (s *Share) Grow(n int64) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.taken+n > s.m.total {
		return refuse(memoryName, "it needs %s more of the agent's memory than the %s that were set aside for it, and "+
			"checkpoints hold %s of %s: try again later, or raise --checkpoint-memory and the agent's memory limit", mib(n),
			mib(s.bytes), mib(s.m.taken), mib(s.m.total))
	}
	s.bytes += n
	s.m.add(s.namespace, n)
	s.m.changed(s.m.taken, len(s.m.waiting))
	return nil
}

// Return gives the share back. It may be called more than once, and for nil.
func (s *Share) Return() {
	if s == nil {
		return
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.add(s.namespace, -s.bytes)
	s.bytes = 0
	s.m.grant()
}
