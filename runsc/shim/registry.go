package shim

import (
	"sync"

	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// registry has the containers that the process serves. Its methods may be called concurrently.
type registry struct {
	mu  sync.Mutex
	all map[string]served // by container id
	pod *sleeper          // of the pod's sandbox container; nil: it is not created yet
}

// served is a container that the process serves.
type served struct {
	extension.TaskServiceExt
	bundle string
}

// bundles returns the bundles of the containers that the process serves, by id.
func (g *registry) bundles() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]string)
	for id, s := range g.all {
		all[id] = s.bundle
	}
	return all
}

// size returns how many containers the process serves.
func (g *registry) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.all)
}
