package loading

import (
	"sync"
	"time"

	"diapause.dev/runsc/gofer"
)

// How far a sandbox that reads a file in order is read ahead for, and from which length of its stream on, in bytes.
const (
	aheadBytes  = 8 << 20
	aheadStream = 1 << 20
)

// need is what is known of a sandbox's need.
type need struct {
	mu      sync.Mutex
	began   time.Time // when the sandbox first asked for memory
	awaited time.Time // when it last asked for what it waits for
	streams [2]stream // of what it waits for, and of the rest
}

// stream is a row of reads, each of which begins where the one before has ended.
type stream struct {
	from, to int64 // what was read
	ahead    int64 // where reading ahead has come to
	missed   bool  // some of it had to be fetched when it was asked for
}

// note notes a read of the memory. It returns what to read ahead, if anything.
func (d *need) note(off, n int64, why gofer.Need, there bool) (from, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.began.IsZero() {
		d.began = time.Now()
	}
	s := &d.streams[1]
	if why != gofer.Ahead {
		d.awaited = time.Now()
		s = &d.streams[0]
	} else if d.thereIs() {
		return 0, 0
	}
	if off != s.to {
		if why == gofer.Late { // it may be a page of what was noted before
			return 0, 0
		}
		*s = stream{from: off, to: off, ahead: off}
	}
	s.to += n
	s.missed = s.missed || !there
	s.ahead = max(s.ahead, s.to)
	if !s.missed || s.to-s.from < aheadStream || s.ahead-s.to > aheadBytes/2 {
		return 0, 0
	}
	from, s.ahead = s.ahead, s.to+aheadBytes
	return from, s.ahead - from
}

// now reports whether the sandbox waits for something, or has lately, and whether it has only begun to load.
func (d *need) now() (needed, starts bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.thereIs(), d.starts()
}

// thereIs reports whether the sandbox waits for something, or has lately. The caller holds d.mu.
func (d *need) thereIs() bool { return time.Since(d.awaited) < standard.needTime }

// starts reports whether the sandbox has only begun to load, and has not waited for anything. The caller holds d.mu.
func (d *need) starts() bool { return d.awaited.IsZero() && time.Since(d.began) < standard.startTime }
