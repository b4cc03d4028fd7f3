package storage

import (
	"io"
	"sync"
	"time"
)

// wire measures how fast a backend takes packs: by all that it took while it was given any. Safe
// for concurrent use; the zero value has measured nothing.
type wire struct {
	mu     sync.Mutex
	active int       // packs under way
	size   float64   // their bytes
	left   float64   // those of them that the backend has not read yet
	at     time.Time // of the last event
	busy   float64   // seconds in which any was under way, the older ones counting less
	taken  float64   // bytes read by the backend in them
}

// wireMemory is how many busy seconds count.
const wireMemory = 4.0

// send returns a reader of a pack for a backend, and what is to be called once the backend is done
// with it.
func (w *wire) send(r io.Reader, size int64) (_ io.Reader, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	w.active++
	w.size += float64(size)
	w.left += float64(size)
	p := &passage{r: r, wire: w, left: float64(size)}
	return p, func() { w.end(p, size) }
}

// passage is a pack on its way to the backend.
type passage struct {
	r    io.Reader
	wire *wire
	left float64
}

func (p *passage) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.wire.mu.Lock()
	defer p.wire.mu.Unlock()
	p.left -= float64(n)
	p.wire.left -= float64(n)
	p.wire.taken += float64(n)
	return n, err
}

func (w *wire) end(p *passage, size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	w.left -= p.left
	w.size -= float64(size)
	if w.active--; w.active == 0 {
		w.size, w.left = 0, 0 // no sum of rounding errors
	}
}

// advance accounts for the time since the last event.
func (w *wire) advance() {
	now := time.Now()
	if w.active > 0 {
		w.busy += now.Sub(w.at).Seconds()
	}
	if w.busy > wireMemory {
		w.taken *= wireMemory / w.busy
		w.busy = wireMemory
	}
	w.at = now
}

// doubt is how many seconds are added to those measured: a first burst goes into buffers, and says
// little.
const doubt = 0.005

// state returns the rate in bytes per second (0: nothing is known) and how many bytes the backend
// still has to do with. As long as it has taken none, it may be about to take all. Some backends
// read a pack at once and are busy with it for long: until it is done, a quarter of it is taken to
// be left.
func (w *wire) state() (rate, left float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	taken := w.taken
	if taken == 0 {
		taken = w.size
	}
	return taken / (w.busy + doubt), max(w.left, w.size/4)
}
