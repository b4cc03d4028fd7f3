package ready

import (
	"slices"
	"time"

	"diapause.dev/runsc/sleep"
)

// settleTime is how long a pod sleeps before it is made ready, unless it is always to be. One that wakes sooner would
// not have gained by it.
const settleTime = 5 * time.Second

// candidate is a pod that sleeps.
type candidate struct {
	sleep.Mark
	wish  Wish
	slept time.Duration
	wakes int // within the last hour
}

// idle returns for how long the pod counts as idle: one that wakes more often counts for less.
func (c candidate) idle() time.Duration { return c.slept / time.Duration(c.wakes+1) }

// settling returns how long the pod is yet to sleep before it is made ready.
func (c candidate) settling() time.Duration {
	if c.wish == Always {
		return 0
	}
	return max(0, settleTime-c.slept)
}

// before orders pods by who is made ready first: those that are always to be, and then the least idle.
func before(a, b candidate) int {
	if (a.wish == Always) != (b.wish == Always) {
		if a.wish == Always {
			return -1
		}
		return 1
	}
	return int(a.idle() - b.idle())
}

// plan returns which pods that sleep are to be made ready, and which are no longer to be, so that n are ready. Again is
// how soon the next one will have slept long enough; 0: there is none.
func plan(asleep []candidate, n int) (ready, drop []candidate, again time.Duration) {
	all := slices.Clone(asleep)
	slices.SortFunc(all, before)
	for _, c := range all {
		switch {
		case c.Ready && (c.wish == Never || n == 0):
			drop = append(drop, c)
		case c.Ready:
			n--
		case c.wish == Never || n == 0:
		case c.settling() > 0:
			if again == 0 || c.settling() < again {
				again = c.settling()
			}
		default:
			ready = append(ready, c)
			n--
		}
	}
	return ready, drop, again
}
