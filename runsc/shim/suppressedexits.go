package shim

import (
	"context"
	"fmt"
	"sync"
)

// suppressedExits takes exits out of the stream that process.translateExits reads, because their pod goes to sleep. Its
// methods may be called concurrently.
type suppressedExits struct {
	mu      sync.Mutex
	all     map[string]chan struct{} // by container id; closed when the exit was taken
	streams map[string]*streams      // of containers that have slept; closed when they really exit
}

// suppress makes the next exit of a container one that is not reported.
func (s *suppressedExits) suppress(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]chan struct{})
	}
	s.all[id] = make(chan struct{})
}

// forget undoes suppress.
func (s *suppressedExits) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

// consume reports whether an exit that has just happened is one that is not reported.
func (s *suppressedExits) consume(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.all[id]
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

// await waits until the exit that was expected of a container was taken.
func (s *suppressedExits) await(ctx context.Context, id string) error {
	s.mu.Lock()
	taken := s.all[id]
	s.mu.Unlock()
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
func (s *suppressedExits) keep(id string, x *streams) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = make(map[string]*streams)
	}
	s.streams[id] = x
}

// exited closes what was kept open for a container that has ended.
func (s *suppressedExits) exited(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.streams[id]; x != nil {
		x.Close()
		delete(s.streams, id)
	}
}
