package storage

import (
	"sync"
	"time"
)

// writeSpeed measures how fast a backend takes packs: how much it took in the time in which there was something to
// take. It is safe for concurrent use. The zero value has measured nothing.
type writeSpeed struct {
	mu     sync.Mutex
	busy   int       // packs on which the backend works: it reads what is ready, or makes them durable
	left   float64   // bytes that are ready and that it has not read yet
	ending float64   // bytes of packs that it has read completely and not finished
	at     time.Time // of the last event
	spent  float64   // seconds in which busy was not 0; older ones count less
	taken  float64   // bytes that it read in these seconds
}

// speedWindow is for how many seconds of work a measurement counts.
const speedWindow = 4.0

// upload is a pack on its way to the backend. Its methods except add are called one at a time.
type upload struct {
	speed *writeSpeed
	idle  bool // the backend waits for more
	left  float64
	size  float64
	read  bool // whole
}

// begin starts the upload of a pack. It is idle, because the backend asks for data before there is any.
func (w *writeSpeed) begin() *upload { return &upload{speed: w, idle: true} }

// add records bytes that are ready to be read.
func (p *upload) add(n int) {
	w := p.speed
	w.mu.Lock()
	defer w.mu.Unlock()
	p.left += float64(n)
	p.size += float64(n)
	w.left += float64(n)
}

// take records that bytes are being read. The backend is busy until it waits.
func (p *upload) take(n int) {
	w := p.speed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	p.work()
	p.left -= float64(n)
	w.left -= float64(n)
	w.taken += float64(n)
}

// wait records that the backend has handled everything that was ready.
func (p *upload) wait() {
	w := p.speed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	p.rest()
}

// whole records that the backend has read the whole pack.
func (p *upload) whole() {
	w := p.speed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	p.work()
	p.read = true
	w.ending += p.size
}

// end records that the backend has finished, or has failed.
func (p *upload) end() {
	w := p.speed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	p.rest()
	w.left -= p.left
	if p.read {
		w.ending -= p.size
	}
}

func (p *upload) work() {
	if p.idle {
		p.idle = false
		p.speed.busy++
	}
}

func (p *upload) rest() {
	if !p.idle {
		p.idle = true
		p.speed.busy--
	}
}

// advance accounts for the time since the last event. The caller holds w.mu.
func (w *writeSpeed) advance() {
	now := time.Now()
	if w.busy > 0 {
		w.spent += now.Sub(w.at).Seconds()
	}
	if w.spent > speedWindow {
		w.taken *= speedWindow / w.spent
		w.spent = speedWindow
	}
	w.at = now
}

// doubt is added to the measured seconds: a first burst goes into buffers and says little.
const doubt = 0.002

// state returns the rate in bytes per second (0: unknown), and how many bytes the backend still has to handle. Some
// backends read a pack at once and then work on it for long. Until such a pack is finished, a quarter of it counts as
// left.
func (w *writeSpeed) state() (rate, left float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	return w.taken / (w.spent + doubt), max(w.left, w.ending/4)
}
