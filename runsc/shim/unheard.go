package shim

import (
	"sync"
	"time"
)

// hearTime is how long after a container's start the kubelet may not have heard of it.
const hearTime = 2 * time.Second

// starts records when containers were started. Its methods may be called concurrently. The zero value has no starts.
type starts struct {
	mu   sync.Mutex
	ends map[string]time.Time // by container id; zero: the start is under way
}

// begin records that a container is being started. If the start fails, call forget.
func (s *starts) begin(id string) { s.set(id, time.Time{}) }

// end records that a container has been started.
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

// over reports whether a container has been started.
func (s *starts) over(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, ok := s.ends[id]
	return ok && !end.IsZero()
}

// recent reports whether a container is being started, or was started within the last hearTime.
func (s *starts) recent(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, ok := s.ends[id]
	return ok && (end.IsZero() || time.Since(end) < hearTime)
}

// forget records that a container is deleted, or was not started.
func (s *starts) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, id)
}

// unheard reports whether a kill hits a container of a restored sandbox before the kubelet can know that it was
// started.
//
// If the kubelet ends while it starts a container, containerd kills that container at once. The restarted kubelet
// then makes another container in the same sandbox (containerd, internal/cri/server, StartContainer). That container
// would start anew, although the pod counts as restored. If the sandbox ends instead, the kubelet makes another
// sandbox, which is restored. A deliberate stop asks the container to end before it kills it: unheard does not
// concern it.
func (c *containers) unheard(id string) bool {
	o, ok := c.bundle.ordered()
	return ok && !o.Rootfs && c.starts.recent(id)
}
