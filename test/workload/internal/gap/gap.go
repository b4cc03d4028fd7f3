// Package gap measures when this process did not run, as the process itself sees it: a thread that
// sleeps a little and looks at the clock, again and again, writes down each time it came back late.
package gap

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/test/workload/answers"
)

const (
	// nap is the sleep between two looks at the clock; a gap is measured to about this.
	nap = 200 * time.Microsecond
	// floor is the shortest gap that is written down.
	floor = 5 * time.Millisecond
	// maxGaps bounds what is kept; the oldest go first.
	maxGaps = 4096
)

// Meter measures gaps. Its methods may be called from any goroutine.
type Meter struct {
	mu   sync.Mutex
	gaps []answers.Gap
}

// Run measures until ctx ends, on a thread of its own.
func (m *Meter) Run(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sleep := unix.NsecToTimespec(int64(nap))
	for last := time.Now(); ctx.Err() == nil; {
		_ = unix.Nanosleep(&sleep, nil) // a signal only makes it shorter
		now := time.Now()
		if d := now.Sub(last); d > floor {
			m.add(answers.Gap{
				StartUnixNS: last.UnixNano(), MS: milliseconds(d),
				WallMS: milliseconds(now.Round(0).Sub(last.Round(0))),
			})
		}
		last = now
	}
}

func (m *Meter) add(g answers.Gap) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.gaps) == maxGaps {
		m.gaps = m.gaps[1:]
	}
	m.gaps = append(m.gaps, g)
}

// Report returns what was seen; with reset it starts anew.
func (m *Meter) Report(reset bool) answers.Gaps {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := answers.Gaps{Gaps: append([]answers.Gap{}, m.gaps...)}
	for _, g := range r.Gaps {
		if g.MS > r.MaxMS {
			r.MaxMS, r.At = g.MS, g.StartUnixNS
		}
	}
	if reset {
		m.gaps = nil
	}
	return r
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
