package fidelity

import (
	"fmt"
	"sync"
	"sync/atomic"

	"diapause.dev/test/workload/answers"
)

// record is what one check writes down. It may be used from any goroutine.
type record struct {
	name     string
	progress atomic.Int64

	mu      sync.Mutex
	failure error // the first
}

func (r *record) step() { r.progress.Add(1) }

// fail keeps the first failure; nil is none.
func (r *record) fail(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = fmt.Errorf("after %d: %w", r.progress.Load(), err)
	}
}

func (r *record) report() answers.Check {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := answers.Check{Check: r.name, OK: r.failure == nil, Progress: r.progress.Load()}
	if r.failure != nil {
		v.Detail = r.failure.Error()
	}
	return v
}
