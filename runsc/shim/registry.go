package shim

import (
	"sync"

	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// registry has the containers that the process serves. Its methods may be called concurrently.
type registry struct {
	mu  sync.Mutex
	all map[string]served // by container id
	pod *sleepService     // of the pod's sandbox container; nil: it is not created yet
}

// served is a container that the process serves.
type served struct {
	extension.TaskServiceExt
	bundle string
}

// isMember reports whether a container is created in the sandbox of this process's pod.
func (g *registry) isMember(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pod != nil && g.pod.c.bundle.id != id
}

// members returns the containers in the sandbox of this process's pod.
func (g *registry) members() (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, s := range g.all {
		if g.pod != nil && s.TaskServiceExt == g.pod && id != g.pod.c.bundle.id {
			ids = append(ids, id)
		}
	}
	return ids
}

// pidOf returns the process of a container for which gVisor's shim knows pid.
func (g *registry) pidOf(id string, pid uint32) uint32 {
	g.mu.Lock()
	z := g.pod
	g.mu.Unlock()
	if z == nil {
		return pid
	}
	return z.pidOf(id, pid)
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
