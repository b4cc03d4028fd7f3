package shim

import (
	"sync"
	"time"
)

// reportWindow is how long after a container's start the kubelet may not have heard of it.
const reportWindow = 2 * time.Second

// recentStarts records when containers were started. Its methods may be called concurrently. The zero value has no
// starts.
type recentStarts struct {
	mu  sync.Mutex
	all map[string]started // by container id
}

// started is the start of a container.
type started struct {
	end      time.Time // zero: it is under way
	restores bool      // with it, the container goes on as the snapshot has it
	hooked   bool      // the kubelet has run its postStart hook
}

// begin records that a container is being started, and whether that restores it. If the start fails, call forget.
func (s *recentStarts) begin(id string, restores bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]started)
	}
	s.all[id] = started{restores: restores}
}

// end records that a container has been started. It has no effect without begin.
func (s *recentStarts) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.all[id]; ok {
		x.end = time.Now()
		s.all[id] = x
	}
}

// known reports whether a container has been started, or is being started.
func (s *recentStarts) known(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.all[id]
	return ok
}

// over reports whether a container has been started.
func (s *recentStarts) over(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.all[id].end.IsZero()
}

// restoredNow reports whether a container is being restored, or was within the last reportWindow.
func (s *recentStarts) restoredNow(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[id]
	return x.restores && (x.end.IsZero() || time.Since(x.end) < reportWindow)
}

// hookTime is how long after a container's start the kubelet runs its postStart hook at the latest. It does so at once,
// unless the node is busy.
const hookTime = time.Minute

// takeHook reports, once for each container, whether its postStart hook may come now and has run in the life that the
// container's snapshot is of.
func (s *recentStarts) takeHook(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.all[id]
	if !ok || !x.restores || x.hooked || !x.end.IsZero() && time.Since(x.end) > hookTime {
		return false
	}
	x.hooked = true
	s.all[id] = x
	return true
}

// forget records that a container is deleted, or was not started.
func (s *recentStarts) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}
