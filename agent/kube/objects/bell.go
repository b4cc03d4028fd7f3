package objects

import "sync"

// Bell wakes all that wait for news. Its methods may be called concurrently.
type Bell struct {
	mu sync.Mutex
	ch chan struct{}
}

// Listen returns a channel that is closed at the next ring.
func (b *Bell) Listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// Ring wakes those that listen now.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
