// Package connections has the connections of containerd to a shim. They repeat answers while the shim's pod sleeps, and
// can be ended for one container alone.
package connections

import (
	"sync"

	"github.com/containerd/ttrpc"
)

// Set is a set of connections. Containerd makes one for each container, and takes a container whose connection ends for
// ended: it then cleans up what is left of it. The zero value is empty. Its methods may be called concurrently.
type Set struct {
	answers standingAnswers

	mu  sync.Mutex
	all map[*repeating]string // the id of the container that it is for
}

// Handshaker returns a handshaker that puts the connections that another one has admitted into the set.
func (s *Set) Handshaker(next ttrpc.Handshaker) ttrpc.Handshaker { return repeated{next, s} }

// Repeat has answers repeated from now on that stay the same while a pod sleeps.
func (s *Set) Repeat() { s.answers.begin() }

// Stop ends Repeat: all questions reach the service again.
func (s *Set) Stop() { s.answers.end() }

// Repeats reports whether answers are repeated.
func (s *Set) Repeats() bool { return s.answers.open() }

// Drop ends the connections that are for a container.
func (s *Set) Drop(container string) {
	for _, c := range s.of(container) {
		_ = c.socket.close() // waits for a request that is being read, which may be about to be noted
	}
}

// note notes which container a connection is for.
func (s *Set) note(c *repeating, container string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*repeating]string)
	}
	s.all[c] = container
}

// forget forgets a connection that has ended.
func (s *Set) forget(c *repeating) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

func (s *Set) of(container string) (all []*repeating) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, of := range s.all {
		if of == container {
			all = append(all, c)
		}
	}
	return all
}
