package order

import (
	"context"
	"sync"

	"diapause.dev/test/workload/answers"
)

// burst is how many pages are written before the writer looks whether it is wanted otherwise.
const burst = 256

// Writer writes a region at full speed. Its methods may be called from any goroutine.
type Writer struct {
	mu     sync.Mutex // held by who uses the region; the writer holds it for a burst
	region *Region
	thawed *sync.Cond
	frozen bool
	done   bool
}

// NewWriter returns a writer of r, which is its own from now on.
func NewWriter(r *Region) *Writer {
	w := &Writer{region: r}
	w.thawed = sync.NewCond(&w.mu)
	return w
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, w.stop)()
	for w.burst() {
	}
}

func (w *Writer) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	w.thawed.Broadcast()
}

// burst writes some pages and reports whether to go on.
func (w *Writer) burst() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.frozen && !w.done {
		w.thawed.Wait()
	}
	for range burst {
		w.region.Step()
	}
	return !w.done
}

// Freeze stops the writer between two writes; Freeze(false) lets it go on.
func (w *Writer) Freeze(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = on
	w.thawed.Broadcast()
}

// Verify checks the region between two writes.
func (w *Writer) Verify() answers.Order {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.region.Verify()
}
