package shim

import (
	"sync"

	"golang.org/x/sys/unix"
)

// endings are the containers of a sandbox that have been told to end and have not been deleted yet.
// What is saved of such a sandbox would end again as soon as it is restored. The zero value has none.
type endings struct {
	mu  sync.Mutex
	ids map[string]bool
}

// told notes that a container gets a signal, and reports whether it is the first that tells it to end.
func (e *endings) told(id string, s unix.Signal) (first bool) {
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

// forget notes that a container is deleted.
func (e *endings) forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.ids, id)
}

// first returns one of them, empty: there is none.
func (e *endings) first() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.ids {
		return id
	}
	return ""
}
