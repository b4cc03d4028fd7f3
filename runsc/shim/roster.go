package shim

import "sync"

// roster has what is known of the containers of a pod from their creation on. The zero value knows none. Its methods
// may be called concurrently.
type roster struct {
	mu      sync.Mutex
	names   map[string]string // in the pod, by container id
	waiting map[string]bool   // likewise; containers that nothing has asked to start
	leaving map[string]bool   // likewise; containers whose end is watched, see seeOut
}

// add adds a container that is about to be created.
func (k *roster) add(id, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names == nil {
		k.names, k.waiting = make(map[string]string), make(map[string]bool)
	}
	k.names[id] = name
}

// name returns a container's name in its pod, or "" if it has none.
func (k *roster) name(id string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.names[id]
}

// await notes that a container was created and waits for its start.
func (k *roster) await(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting[id] = true
}

// asked notes that a container is to start.
func (k *roster) asked(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.waiting, id)
}

// awaited reports whether a container was created, and nothing has asked to start it.
func (k *roster) awaited(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waiting[id]
}

// leave records that a container's end is watched, and reports whether it was not watched before.
func (k *roster) leave(id string) (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leaving == nil {
		k.leaving = make(map[string]bool)
	}
	first = !k.leaving[id]
	k.leaving[id] = true
	return first
}

// forget forgets a container that was not created, or is deleted.
func (k *roster) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.names, id)
	delete(k.waiting, id)
	delete(k.leaving, id)
}
