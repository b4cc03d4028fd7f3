package storage

import (
	"sync"
	"time"
)

// writeSpeed measures how fast a backend takes packs: by all that it took while there was something for
// it to take. It is safe for concurrent use. The zero value has measured nothing.
type writeSpeed struct {
	mu     sync.Mutex
	busy   int       // packs that the backend is at: reading what is there, or making it durable
	left   float64   // bytes that are there for it and that it has not read yet
	ending float64   // bytes of packs that it has read whole and is not done with
	at     time.Time // of the last event
	spent  float64   // seconds in which it was at any, the older ones counting less
	taken  float64   // bytes that it has read in them
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

// begin starts the upload of a pack that the backend will ask for more of than there is.
func (w *writeSpeed) begin() *upload { return &upload{speed: w, idle: true} }

// add notes bytes that are there to be read.
func (p *upload) add(n int) {
	w := p.speed
	w.mu.Lock()
	defer w.mu.Unlock()
	p.left += float64(n)
	p.size += float64(n)
	w.left += float64(n)
}

// take notes that bytes are being read: the backend is at work until it waits.
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

// wait notes that the backend is done with all that there was.
func (p *upload) wait() {
	w := p.speed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	p.rest()
}

// whole notes that the backend has read all.
func (p *upload) whole() {
	w := p.speed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	p.work()
	p.read = true
	w.ending += p.size
}

// end notes that the backend is done, or has failed.
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

// advance accounts for the time since the last event.
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

// doubt is how many seconds are added to those measured: a first burst goes into buffers, and says
// little.
const doubt = 0.002

// state returns the rate in bytes per second (0: nothing is known) and how many bytes the backend
// still has to do with. Some backends read a pack at once and are busy with it for long: until it
// is done, a quarter of it is taken to be left.
func (w *writeSpeed) state() (rate, left float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	return w.taken / (w.spent + doubt), max(w.left, w.ending/4)
}
