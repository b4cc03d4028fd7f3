package shim

import (
	"sync"
	"time"
)

// hearTime is how long after the start of a container nobody may have heard of it.
const hearTime = 2 * time.Second

// starts are the starts of containers. Its methods may be called concurrently. The zero value has none.
type starts struct {
	mu   sync.Mutex
	ends map[string]time.Time // by container id; zero: the start is under way
}

// begin notes that a container is being started. A start that fails is to be forgotten.
func (s *starts) begin(id string) { s.set(id, time.Time{}) }

// end notes that a container has been started.
func (s *starts) end(id string) { s.set(id, time.Now()) }

func (s *starts) set(id string, end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		s.ends = make(map[string]time.Time)
	}
	s.ends[id] = end
}

// known reports whether a container has been started, or is being started.
func (s *starts) known(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ends[id]
	return ok
}

// recent reports whether a container is being started, or was a moment ago.
func (s *starts) recent(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, ok := s.ends[id]
	return ok && (end.IsZero() || time.Since(end) < hearTime)
}

// forget notes that a container is deleted, or was not started.
func (s *starts) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, id)
}

// unheard reports whether a container of a restored sandbox is being killed of whose start nobody may have heard.
//
// If the kubelet ends while it has a container started, containerd kills that container at once, and the kubelet's
// successor makes another one in the same sandbox (containerd, internal/cri/server, StartContainer). That one would
// start anew, though the pod is said to be restored. If the sandbox ends instead, the kubelet makes another sandbox,
// which is restored. Whoever stops a container on purpose asks it to end first.
func (c *containers) unheard(id string) bool {
	o, ok := c.bundle.ordered()
	return ok && !o.Rootfs && c.starts.recent(id)
}
