package shim

import "sync"

// connections are those of containerd to this process. Containerd makes one for each container, and takes a container
// whose connection ends for ended: it then cleans up what is left of it.
var connections connectionSet

// connectionSet is a set of connections. The zero value is empty. Its methods may be called concurrently.
type connectionSet struct {
	mu  sync.Mutex
	all map[*repeating]string // the id of the container that it is for
}

// note notes which container a connection is for.
func (s *connectionSet) note(c *repeating, container string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*repeating]string)
	}
	s.all[c] = container
}

// forget forgets a connection that has ended.
func (s *connectionSet) forget(c *repeating) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

// drop ends the connections that are for a container.
func (s *connectionSet) drop(container string) {
	for _, c := range s.of(container) {
		_ = c.socket.close() // waits for a request that is being read, which may be about to be noted
	}
}

func (s *connectionSet) of(container string) (all []*repeating) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, of := range s.all {
		if of == container {
			all = append(all, c)
		}
	}
	return all
}
