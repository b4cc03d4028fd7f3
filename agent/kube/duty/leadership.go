package duty

import "sync/atomic"

// Leadership says whether this process does the cluster's duties. Who removes data for Duties must know that, too, so
// it is made before both. Its methods may be called concurrently.
type Leadership struct {
	leading atomic.Bool
	begun   chan struct{} // a signal that leading has begun
}

// NewLeadership returns the leadership of a process that does not lead yet.
func NewLeadership() *Leadership { return &Leadership{begun: make(chan struct{}, 1)} }

// Begin has this process do the duties.
func (l *Leadership) Begin() {
	l.leading.Store(true)
	select {
	case l.begun <- struct{}{}:
	default:
	}
}

// Leading reports whether this process does the duties.
func (l *Leadership) Leading() bool { return l.leading.Load() }

// End is called when another process may do the duties.
func (l *Leadership) End() { l.leading.Store(false) }
