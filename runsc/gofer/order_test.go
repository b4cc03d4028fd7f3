package gofer

import (
	"math/rand/v2"
	"testing"
)

const mib = 1 << 20

// TestOrder: a read ahead of need begins where the one before has ended, or after what was asked for meanwhile.
func TestOrder(t *testing.T) {
	tests := map[string][]struct {
		off, n  int64
		awaited bool
	}{
		"ahead of need": {{0, mib, false}, {mib, mib, false}, {2 * mib, mib / 2, false}, {5 * mib / 2, mib, false}},
		"awaited in between": {
			{0, mib, false}, {9 * mib, mib, true}, {mib, mib, false}, {10 * mib, mib, true}, {2 * mib, mib, false},
		},
		"what was awaited is skipped": {
			{0, mib, false},
			{2 * mib, mib, true},
			{4 * mib, mib, true},
			{3 * mib, mib, true},
			{mib, mib, false},
			{5 * mib, mib, false},
		},
		"awaited right before it": {
			{0, 4 * mib, false}, {6 * mib, mib, true}, {4 * mib, 2 * mib, false}, {7 * mib, mib, false},
		},
		"begun somewhere":          {{70 * mib, mib, true}, {71 * mib, mib, true}, {0, mib, false}},
		"asked for again, earlier": {{0, 4 * mib, false}, {mib, mib, true}, {4 * mib, mib, false}},
	}
	for name, reads := range tests {
		t.Run(name, func(t *testing.T) {
			var o order
			for i, r := range reads {
				if got := o.awaited(r.off, r.n); got != r.awaited {
					t.Errorf("read %d, %d+%d: awaited %t, want %t", i, r.off, r.n, got, r.awaited)
				}
			}
		})
	}
}

// TestOrderFindsBack: after a hole, of memory that the sandbox has freed, its reads ahead of need are taken for awaited
// ones, but not for long. So are those of a session that begins in the middle.
func TestOrderFindsBack(t *testing.T) {
	var o order
	at := int64(0)
	for ; at < 8*mib; at += mib {
		o.awaited(at, mib)
	}
	at += mib // the hole
	missed := 0
	for ; at < 512*mib; at += mib {
		if o.awaited(at, mib) {
			missed++
		}
		if at%(8*mib) == 0 {
			o.awaited(2048*mib+at, mib) // something else is awaited meanwhile
		}
	}
	if missed > mostAwaited/mib+1 {
		t.Errorf("%d reads were taken for awaited after a hole, want at most %d", missed, mostAwaited/mib+1)
	}
}

// TestHostileOrder: whatever a sandbox asks for, little is remembered of it.
func TestHostileOrder(t *testing.T) {
	var o order
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 * maxSpans {
		o.awaited(r.Int64N(1<<62), r.Int64N(mib))
	}
	if len(o.done) > maxSpans {
		t.Errorf("%d ranges are remembered, want at most %d", len(o.done), maxSpans)
	}
	for i := 1; i < len(o.done); i++ {
		if o.done[i].from <= o.done[i-1].to {
			t.Fatalf("ranges %v and %v are not one", o.done[i-1], o.done[i])
		}
	}
}
