package restore

import (
	"context"

	"diapause.dev/api/snapshot"
)

// A pod that wakes takes its memory bit by bit. What it has not taken yet is still free on the node, and nobody else
// may have it.

// Sleeper returns the pod that a request wakes, and how many bytes of memory its sandbox takes then.
func (ws *Wakes) Sleeper(ctx context.Context, request string) (pod snapshot.PodRef, memory int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviveTime)
	defer cancel()
	r, err := ws.registry.find(ctx, request)
	if err != nil {
		return pod, 0, err
	}
	return r.Pod, r.memory(), nil
}

// Admit notes that a pod that sleeps may be woken by a request. It may be called more than once.
func (ws *Wakes) Admit(request string) {
	r := ws.registry.ofRequest(request)
	if r == nil {
		return
	}
	r.mu.Lock()
	if !r.admitted {
		close(r.may)
	}
	r.admitted = true
	r.mu.Unlock()
	// Before this, nothing of its memory is kept: it may sleep for a day, and is one of many.
	life := ws.restores.Life
	life.Go(func() { r.image.Warm(life.Context()) })
}

// Admitted reports whether Admit was called for a request that has not ended.
func (ws *Wakes) Admitted(request string) bool {
	r := ws.registry.ofRequest(request)
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admitted
}

// Unloaded returns how many bytes of memory the pods that may be woken, or are waking, have not loaded yet.
func (ws *Wakes) Unloaded() int64 { return ws.registry.unloaded() }

// Payloads returns the directories which the kubelet has written and that a pod needs to wake, by a request.
func (ws *Wakes) Payloads(ctx context.Context, request string) ([]string, error) {
	r, err := ws.registry.find(ctx, request)
	if err != nil {
		return nil, err
	}
	return r.payloads, nil
}
