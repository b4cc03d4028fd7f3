package pace

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"
)

const (
	// least is the share of all processors that the work may always take. It is much less than what may be noticed. Work
	// that stores something keeps the kernel and other threads busy as well. A thread of a sandbox that has lost its
	// processor for a moment makes others wait.
	least = 0.018
	// spare is the share of all processors that is to stay free. If less is, others want more than they get.
	spare = 0.05
	// window is how often the share is adjusted. The kernel counts idle time in steps of 10 ms.
	window = 200 * time.Millisecond
	// pause is how long there must have been no work for the share to begin anew.
	pause = 2 * time.Second
	// mostBusy bounds what one piece of work counts as. One that took longer has waited for a disk.
	mostBusy = 50 * time.Millisecond
)

// Pace divides processor time among all work that waits for it. Its methods may be called from any goroutine.
type Pace struct {
	processors float64
	free       func() time.Duration // processor time that nobody has wanted, of all processors, since some instant

	mu     sync.Mutex
	share  float64       // processors that the work may take, all together
	looked time.Time     // when free was asked
	before time.Duration // its answer
	next   time.Time     // when all work that was done is paid for
}

// New returns a pace of this node. There should be one for all work of a kind.
func New() *Pace {
	n := runtime.NumCPU()
	return newPace(n, func() time.Duration { return freeTime(n) })
}

func newPace(processors int, free func() time.Duration) *Pace {
	return &Pace{processors: float64(processors), free: free}
}

// Wait is called after a piece of work that has taken so long on one processor. It returns when the next one may begin,
// or with the cause of ctx if that ends first. Pieces should take some milliseconds.
func (p *Pace) Wait(ctx context.Context, took time.Duration) error {
	timer := time.NewTimer(p.Rest(took, math.MaxInt64))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Rest is called like Wait, by somebody who waits by other means. It returns for how long, and that is not longer than
// most.
func (p *Pace) Rest(took, most time.Duration) time.Duration {
	return p.account(time.Now(), min(took, mostBusy), most)
}

// account returns how long whoever has just worked has to wait. Work pays for the time since the work before it began:
// time in which nobody works is not saved up, nor is what would have to be waited beyond most.
func (p *Pace) account(now time.Time, took, most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.adjust(now)
	if began := now.Add(-took); p.next.Before(began) {
		p.next = began
	}
	wait := min(p.next.Add(time.Duration(float64(took)/p.share)).Sub(now), most)
	p.next = now.Add(wait)
	return wait
}

// adjust follows what others leave. The caller holds p.mu. The share grows by what is free, since nobody wants that. If
// nothing is, others may want more than they get, so it is halved, down to what they cannot be left.
func (p *Pace) adjust(now time.Time) {
	elapsed := now.Sub(p.looked)
	if elapsed < window {
		return
	}
	free := p.free()
	left := float64(free-p.before)/float64(elapsed) - spare*p.processors
	p.looked, p.before = now, free
	lowest := least * p.processors
	switch {
	case elapsed > pause:
		p.share = lowest
	case left < 0:
		p.share = max(p.share/2, lowest)
	default:
		p.share = min(p.share+left, p.processors)
	}
}
