package shim

import (
	"sync"

	"golang.org/x/sys/unix"
)

// endings are the containers of a sandbox that were told to end and are not deleted yet. A snapshot of such a sandbox
// would end again as soon as it is restored. The zero value has none.
type endings struct {
	mu  sync.Mutex
	ids map[string]bool
}

// signalled records a signal to a container, and reports whether it is the first one that tells the container to end.
func (e *endings) signalled(id string, s unix.Signal) (first bool) {
	switch s {
	case 0, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT:
		return false // these ask a process for something else
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ids == nil {
		e.ids = make(map[string]bool)
	}
	first = !e.ids[id]
	e.ids[id] = true
	return first
}

// forget records that a container is deleted.
func (e *endings) forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.ids, id)
}

// first returns one of the containers, or "" if there is none.
func (e *endings) first() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.ids {
		return id
	}
	return ""
}
