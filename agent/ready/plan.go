package ready

import (
	"slices"
	"time"

	"diapause.dev/runsc/sleep"
)

// settleTime is how long a pod sleeps before it is made ready. One that wakes sooner would not have gained by it.
const settleTime = 5 * time.Second

// plan returns which pods that sleep are to be made ready, and which are no longer to be, so that n are ready: those
// that fell asleep last. Again is when the next one will have slept long enough; zero: there is none.
func plan(asleep []sleep.Mark, n int, now time.Time) (ready, drop []sleep.Mark, again time.Time) {
	all := slices.Clone(asleep)
	slices.SortFunc(all, func(a, b sleep.Mark) int { return b.Since.Compare(a.Since) })
	for _, m := range all {
		old := m.Since.Add(settleTime)
		switch {
		case m.Ready && n > 0:
			n--
		case m.Ready:
			drop = append(drop, m)
		case n == 0:
		case old.After(now): // these come first, the oldest of them last
			again = old
		default:
			ready = append(ready, m)
			n--
		}
	}
	return ready, drop, again
}
