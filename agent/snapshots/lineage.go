package snapshots

import (
	"maps"
	"sync"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Lineage remembers, for each sandbox, its newest snapshot of a scope, or the one that it came from: the next
// one shares chunks with it. Its methods may be called concurrently.
type Lineage struct {
	mu     sync.Mutex
	newest map[descent]storage.Key
}

// descent is what a snapshot descends from. Those of different scopes have nothing in common.
type descent struct {
	sandbox string
	scope   snapshot.Scope
}

// NewLineage returns a lineage that remembers nothing.
func NewLineage() *Lineage { return &Lineage{newest: make(map[descent]storage.Key)} }

// Set says that a sandbox's next snapshot of a scope descends from a snapshot.
func (l *Lineage) Set(sandbox string, scope snapshot.Scope, k storage.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest[descent{sandbox, scope}] = k
}

// Parent returns the snapshot that a sandbox's next one descends from, if there is one.
func (l *Lineage) Parent(sandbox string, scope snapshot.Scope) (storage.Key, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.newest[descent{sandbox, scope}]
	return k, ok
}

// Keep forgets all sandboxes but these.
func (l *Lineage) Keep(sandboxes map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.newest, func(d descent, _ storage.Key) bool { return !sandboxes[d.sandbox] })
}
