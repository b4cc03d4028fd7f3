package memory

import (
	"context"
	"time"
)

// beat is how often a writer wakes; it writes in between what its rate asks for.
const beat = 5 * time.Millisecond

// Dirty writes pages all over the memory, mibPerSecond MiB in a second, until ctx ends. It never
// writes more in one beat than there are pages.
func (m *Memory) Dirty(ctx context.Context, mibPerSecond float64) {
	t := time.NewTicker(beat)
	defer t.Stop()
	perBeat := mibPerSecond * (1 << 20) / PageSize * beat.Seconds()
	due, at := 0.0, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for due = min(due+perBeat, float64(m.Pages())); due >= 1 && ctx.Err() == nil; due-- {
			at = (at + stride) % m.Pages()
			m.Write(at)
		}
	}
}

// stride is a prime, so that the writes are spread and reach every page of a power of two.
const stride = 4099
