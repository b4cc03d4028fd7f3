package snapshots

import (
	"maps"
	"sync"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Lineage remembers the newest snapshot of each sandbox and scope, or the snapshot that the sandbox was restored from.
// The sandbox's next snapshot shares chunks with it. Its methods may be called concurrently.
type Lineage struct {
	mu     sync.Mutex
	newest map[descent]storage.Key
}

// descent is a line of snapshots. Snapshots of different scopes share no chunks.
type descent struct {
	sandbox string
	scope   snapshot.Scope
}

// NewLineage returns a lineage that remembers nothing.
func NewLineage() *Lineage { return &Lineage{newest: make(map[descent]storage.Key)} }

// Set records the snapshot from which a sandbox's next snapshot of a scope descends.
func (l *Lineage) Set(sandbox string, scope snapshot.Scope, k storage.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest[descent{sandbox, scope}] = k
}

// Parent returns the snapshot from which a sandbox's next one descends, if there is one.
func (l *Lineage) Parent(sandbox string, scope snapshot.Scope) (storage.Key, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.newest[descent{sandbox, scope}]
	return k, ok
}

// Keep forgets all sandboxes except these.
func (l *Lineage) Keep(sandboxes map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.newest, func(d descent, _ storage.Key) bool { return !sandboxes[d.sandbox] })
}
