package restore

import (
	"errors"
	"sync"
)

// maxUnwoken bounds how many wakes are kept of which no shim has said yet how they went.
const maxUnwoken = 64

// endedWake is a wake whose restore has ended.
type endedWake struct {
	record
	why error // why it has ended, as far as is known
}

// endedWakes are the wakes whose restores have ended, until the shim says how they went: a sandbox that has all its
// memory may still not run. Its methods may be called concurrently. The zero value has none.
type endedWakes struct {
	mu  sync.Mutex
	all map[string]endedWake // by request
}

// keep keeps a restore that has ended, if it was to wake a pod.
func (e *endedWakes) keep(r *restore, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.mu.Lock()
	keep := r.admitted && !r.woken && r.Pod.UID != ""
	w := endedWake{record: r.record, why: errors.Join(r.err, err)}
	r.mu.Unlock()
	if !keep {
		return
	}
	if e.all == nil {
		e.all = make(map[string]endedWake)
	}
	for request := range e.all {
		if len(e.all) >= maxUnwoken {
			delete(e.all, request)
		}
	}
	e.all[w.Request] = w
}

// forget forgets a wake.
func (e *endedWakes) forget(request string) { e.take(request) }

// take returns a wake, and forgets it. Ok is false if it is not kept.
func (e *endedWakes) take(request string) (w endedWake, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, ok = e.all[request]
	delete(e.all, request)
	return w, ok
}
