// Package podnames reserves the names of pods that a node is about to make.
package podnames

import (
	"context"
	"fmt"
	"sync"

	"diapause.dev/agent/errkind"
	"diapause.dev/cri"
)

// Runtime knows the pods of a node. *cri.Client implements it.
type Runtime interface {
	// Taken returns a pod that has one of the names (namespace/name), or nil.
	Taken(ctx context.Context, names []string) (*cri.Pod, error)
}

// Names holds the names that this agent's requests have reserved for new pods. The zero value has none. Its methods may
// be called concurrently.
type Names struct {
	mu    sync.Mutex
	taken map[string]bool // namespace/name
}

// take reserves all the names or none. If one is taken, it returns that one.
func (n *Names) take(names []string) (taken string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range names {
		if n.taken[name] {
			return name, false
		}
	}
	if n.taken == nil {
		n.taken = make(map[string]bool)
	}
	for _, name := range names {
		n.taken[name] = true
	}
	return "", true
}

func (n *Names) release(names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range names {
		delete(n.taken, name)
	}
}

// Claim reserves the names of new pods. Otherwise containerd might make a second pod of the same name, and then neither
// could be named. If another request or a pod of this node has one of the names, the error is of kind
// errkind.ErrNameTaken. The caller calls release when the pods exist.
func (n *Names) Claim(ctx context.Context, r Runtime, namespace string, names []string) (release func(), err error) {
	full := make([]string, len(names))
	for i, name := range names {
		full[i] = namespace + "/" + name
	}
	if name, ok := n.take(full); !ok {
		return nil, fmt.Errorf("pod %s: %w: another request restores it: choose another --name", name, errkind.ErrNameTaken)
	}
	release = func() { n.release(full) }
	pod, err := r.Taken(ctx, full)
	if err == nil && pod != nil {
		err = fmt.Errorf("pod %s: %w: it runs already, with id %.13s: choose another --name, or remove it first", pod,
			errkind.ErrNameTaken, pod.ID)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
