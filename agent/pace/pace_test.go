package pace

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"
)

// machine is a node of which others want some processors, and the work takes the rest if it is let to.
type machine struct {
	processors, wanted float64 // wanted by others
	workers            int
	idle               time.Duration
}

// run has workers work in pieces of 4 ms for a time, and returns which share of the processors they had at its end.
// Nothing of it takes any time.
func (m *machine) run(p *Pace, d time.Duration) float64 {
	const piece = 4 * time.Millisecond
	start := time.Unix(1000, 0)
	now, worked := start, time.Duration(0)
	ready := make([]time.Time, m.workers)
	for ; now.Sub(start) < d; now = now.Add(piece) {
		if now.Sub(start) < d/2 {
			worked = 0
		}
		running := 0.0
		for i := range ready {
			if ready[i].After(now) {
				continue
			}
			running++
			worked += piece
			end := now.Add(piece)
			ready[i] = end.Add(p.account(end, piece, math.MaxInt64))
		}
		free := max(0, m.processors-m.wanted-running)
		m.idle += time.Duration(free * float64(piece))
	}
	return float64(worked) / float64(d/2) / m.processors
}

func TestShare(t *testing.T) {
	tests := map[string]struct {
		machine
		least, most float64
	}{
		"nobody else, one worker":    {machine{processors: 2, workers: 1}, 0.45, 0.51},
		"nobody else, four workers":  {machine{processors: 8, workers: 4}, 0.45, 0.51},
		"one processor is wanted":    {machine{processors: 2, wanted: 1, workers: 1}, 0.35, 0.47},
		"all processors are wanted":  {machine{processors: 2, wanted: 2, workers: 1}, 0.015, 0.021},
		"more is wanted, 16 workers": {machine{processors: 2, wanted: 3, workers: 16}, 0.015, 0.021},
		"most is wanted":             {machine{processors: 8, wanted: 7, workers: 4}, 0.018, 0.12},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPace(int(tt.processors), func() time.Duration { return tt.idle })
			if got := tt.run(p, 40*time.Second); got < tt.least || got > tt.most {
				t.Errorf("the work had %.3f of the processors, want %v to %v", got, tt.least, tt.most)
			}
		})
	}
}

// TestBeginsAnew: after a time without work, what was idle then does not count.
func TestBeginsAnew(t *testing.T) {
	var idle time.Duration
	p := newPace(2, func() time.Duration { return idle })
	now := time.Unix(1000, 0)
	p.account(now, time.Millisecond, math.MaxInt64)
	idle += time.Hour
	now = now.Add(time.Hour)
	if got := p.account(now, time.Millisecond, math.MaxInt64); got < 26*time.Millisecond || got > 27*time.Millisecond {
		t.Errorf("a piece of 1 ms waits %v, want 26.8 ms", got)
	}
}

// TestRest: a wait is never longer than the caller allows, and what is beyond that is not waited for later.
func TestRest(t *testing.T) {
	var idle time.Duration
	p := newPace(2, func() time.Duration { return idle })
	now := time.Unix(1000, 0)
	for range 10 {
		if got := p.account(now, 4*time.Millisecond, 20*time.Millisecond); got != 20*time.Millisecond {
			t.Fatalf("a piece of 4 ms waits %v, want 20 ms", got)
		}
		now = now.Add(24 * time.Millisecond)
	}
	now, idle = now.Add(window), idle+2*window
	if got := p.account(now, 4*time.Millisecond, 20*time.Millisecond); got > 4*time.Millisecond {
		t.Errorf("a piece of 4 ms waits %v once nobody else wants the processors", got)
	}
}

func TestWaitEnds(t *testing.T) {
	p := newPace(1, func() time.Duration { return 0 })
	p.next = time.Now().Add(time.Hour)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := p.Wait(ctx, time.Second); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// TestFreeTime: the kernel says for how long processors were free, and they never are for longer than there was time.
func TestFreeTime(t *testing.T) {
	begin, before := time.Now(), freeTime(1)
	if before == 0 {
		t.Error("nothing is known")
	}
	all := time.Duration(runtime.NumCPU()) * (time.Since(begin) + 20*time.Millisecond) // in steps of 10 ms
	if more := freeTime(1) - before; more > all {
		t.Errorf("%v more were free, of %v", more, all)
	}
}
