package restore

import (
	"context"
	"time"

	"diapause.dev/agent/asleep"
	"diapause.dev/agent/lifetime"
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

// beforehand loads kernels before their pods wake.
type beforehand struct {
	marks     *asleep.Marks
	reminders *asleep.Reminders
	life      *lifetime.Life
}

// serve notes that a sidecar reads the image for a sandbox whose kernel is loaded before the pod wakes.
func (b *beforehand) serve(r *restore) {
	ctx, cancel := context.WithTimeout(b.life.Context(), expectTime)
	r.image.Expect(ctx)
	cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving++
	if !r.ahead {
		r.ahead = true
		b.life.Go(func() { b.awaitWake(r) })
	}
}

// awaitWake waits until the shim has decided to wake a pod, or the restore ends.
func (b *beforehand) awaitWake(r *restore) {
	may := r.may
	for b.marks.Held(r.Request) {
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
		case <-b.life.Context().Done():
			return
		}
	}
	r.mu.Lock()
	r.begun()
	r.mu.Unlock()
	b.load(r)
	close(r.decided)
}

// load begins to load what a pod needs that wakes.
func (b *beforehand) load(r *restore) {
	b.life.Go(func() { r.image.Warm(b.life.Context()) })
	b.life.Go(func() { _ = r.feed(b.reminders) }) // saves time: the first read reports an error
}
