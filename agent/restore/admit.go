package restore

import (
	"context"

	"diapause.dev/agent/recorded"
	"diapause.dev/api/snapshot"
)

// A pod that wakes takes its memory bit by bit. What it has not taken yet is still free on the node, and nobody else
// may have it.

// maxMemory bounds what a snapshot can say of its memory, in bytes.
const maxMemory = 1 << 50

// Sleeper returns the pod that a request wakes, and how many bytes of memory its sandbox takes then.
func (rs *Restores) Sleeper(ctx context.Context, request string) (pod snapshot.PodRef, memory int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviveTime)
	defer cancel()
	r, err := rs.find(ctx, request)
	if err != nil {
		return pod, 0, err
	}
	return r.Pod, r.memory(), nil
}

// memory returns how many bytes of memory the sandbox takes once it has loaded everything.
func (r *restore) memory() int64 {
	switch {
	case r.meta == nil: // it has
		return 0
	case r.meta.Memory > 0:
		return min(r.meta.Memory, maxMemory) + recorded.SandboxOverhead
	}
	return min(max(r.total, 0), maxMemory) + recorded.SandboxOverhead
}

// Admit notes that a pod that sleeps may be woken by a request. It may be called more than once.
func (rs *Restores) Admit(request string) {
	r := rs.ofRequest(request)
	if r == nil {
		return
	}
	r.mu.Lock()
	if !r.admitted {
		close(r.may)
	}
	r.admitted = true
	r.mu.Unlock()
	rs.Life.Go(func() { rs.warmWake(r) })
}

// warmWake prefetches for a pod that is about to wake. Before that nothing of its memory is kept: it may sleep for a
// day, and is one of many.
func (rs *Restores) warmWake(r *restore) {
	rs.mu.Lock()
	s := r.reader
	rs.mu.Unlock()
	if s != nil {
		rs.warm(rs.Life.Context(), s)
	}
}

// Admitted reports whether Admit was called for a request that has not ended.
func (rs *Restores) Admitted(request string) bool {
	r := rs.ofRequest(request)
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admitted
}

// Unloaded returns how many bytes of memory the pods that may be woken, or are waking, have not loaded yet.
func (rs *Restores) Unloaded() (n int64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all {
		r.mu.Lock()
		if r.admitted {
			n += max(r.memory()-r.read, 0)
		}
		r.mu.Unlock()
	}
	return n
}
