package restore

import (
	"context"
	"time"

	"diapause.dev/runsc"
	"diapause.dev/runsc/sleep"
)

// The kernel of a pod that sleeps may be loaded before the pod wakes, see package ready. Its sandbox reads the image,
// and has a sidecar, and yet the pod sleeps: the sandbox gets the kernel's state, and nothing of the memory. The shim
// says so by a mark in the request's directory (sleep.HoldMemory). It decides on the wake, and removes the mark before
// it has the sandbox go on. Until then the reminder stays, the pod counts as asleep, and the end of such a sandbox
// means nothing: the pod is woken by another one.

const (
	// decisionPoll is how often the mark is looked at once the shim was told that the pod may wake.
	decisionPoll = time.Millisecond
	// revivedPoll is how often the next agent looks at it, which may not have told the shim.
	revivedPoll = 20 * time.Millisecond
	// expectTime bounds the search for the working set before a kernel is loaded.
	expectTime = 2 * time.Second
)

// held reports whether a request's pod sleeps, and nothing of its memory is given out.
func (rs *Restores) held(request string) bool {
	return rs.asleep(request) && sleep.MemoryHeld(rs.Requests.Path(request))
}

// sourceAhead returns the image for a sandbox whose kernel is loaded before the pod wakes.
func (rs *Restores) sourceAhead(r *restore) *source {
	rs.mu.Lock()
	s := r.reader
	rs.mu.Unlock()
	if s != nil && s.Expected() == nil { // the sandbox asks for it at once
		ctx, cancel := context.WithTimeout(rs.Life.Context(), expectTime)
		rs.known(ctx, s)
		cancel()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving++
	if !r.ahead {
		r.ahead = true
		rs.Life.Go(func() { rs.awaitWake(r) })
	}
	return &source{rs: rs, restore: r, held: r.decided}
}

// awaitWake waits until the shim has decided to wake a pod, or the restore ends.
func (rs *Restores) awaitWake(r *restore) {
	may := r.may
	for rs.held(r.Request) {
		pause := time.Duration(0)
		r.mu.Lock()
		switch {
		case r.admitted:
			pause, may = decisionPoll, nil
		case r.revived:
			pause = revivedPoll
		}
		r.mu.Unlock()
		var timer <-chan time.Time
		if pause > 0 {
			timer = time.After(pause)
		}
		select {
		case <-may:
		case <-timer:
		case <-r.ended:
			return
		case <-rs.Life.Context().Done():
			return
		}
	}
	r.mu.Lock()
	r.begun()
	r.mu.Unlock()
	rs.Life.Go(func() { rs.warmWake(r) })
	rs.Life.Go(func() { _ = rs.feed(r) }) // saves time: the first read reports an error
	close(r.decided)
}

// holds reports whether a source gives nothing of the memory yet.
func (s *source) holds() bool {
	if s.held == nil {
		return false
	}
	select {
	case <-s.held:
		return false
	default:
		return true
	}
}

// isKernel reports whether a file of an image has nothing of the memory or of volumes.
func isKernel(file string) bool { return file != runsc.PagesFile && !isVolume(file) }

// endedAhead notes that a sandbox has gone without which its pod sleeps on, or wakes by another one. It reports whether
// it was one: it has had nothing of the memory.
func (s *source) endedAhead(gone bool) bool {
	if s.held == nil || s.fed.Load() {
		return false
	}
	r := s.restore
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != loading || r.err != nil || r.woken {
		return false
	}
	r.serving, r.read, r.died = r.serving-1, 0, gone
	return true
}
