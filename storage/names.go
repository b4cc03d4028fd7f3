package storage

import (
	"maps"
	"sync"
	"time"

	"diapause.dev/storage/format"
)

// names remembers what manifests name, so that a removal need not read every manifest of its namespace again. Manifests
// never change, but one may be removed and another made under its key. Safe for concurrent use; the zero value
// remembers nothing.
type names struct {
	mu    sync.Mutex
	known map[Key]*named
}

// named is what a manifest names. modified and size tell that manifest from a later one under its key.
type named struct {
	modified time.Time
	size     int64
	packs    []PackID
	lock     *format.KeyID // nil: not encrypted
	damage   error         // why nobody can tell what it names, or nil
}

// nameAge is how old a manifest must be, by the backend's clock, when it is read, to be remembered. A manifest that is
// made later under its key then has another time, however coarse that clock is.
const nameAge = time.Second

// get returns what a listed manifest names, if that is remembered.
func (n *names) get(key Key, o ObjectInfo) *named {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.known[key]
	if e == nil || !e.modified.Equal(o.Modified) || e.size != o.Size {
		return nil
	}
	return e
}

func (n *names) put(key Key, e *named) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[Key]*named{}
	}
	n.known[key] = e
}

// keep forgets the manifests of a namespace that are no longer listed.
func (n *names) keep(namespace string, listed map[Key]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.known, func(key Key, _ *named) bool { return key.Namespace == namespace && !listed[key] })
}

// objects yields the names of the objects of a namespace that a manifest names.
func (e *named) objects(namespace string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, id := range e.packs {
			if !yield(format.PackName(namespace, id)) {
				return
			}
		}
		if e.lock != nil {
			yield(format.KeyName(namespace, *e.lock))
		}
	}
}
