package sleeppolicy

import "time"

// mostShort bounds how many short sleeps in a row count.
const mostShort = 3

// rest keeps a pod from falling asleep over and over: a sleep that is shorter than the idle time before it was not
// worth it, and the next idle time is twice as long, up to eight times.
type rest struct {
	since time.Time // when it fell asleep; zero: it is awake
	short int       // how many of its last sleeps in a row were short, at most mostShort
}

// note takes into account whether the pod sleeps now, and since when. After is the idle time of its policy.
func (r *rest) note(since time.Time, asleep bool, now time.Time, after time.Duration) {
	switch {
	case asleep:
		r.since = since
	case r.since.IsZero(): // it was awake before
	case now.Sub(r.since) < after:
		r.since, r.short = time.Time{}, min(r.short+1, mostShort)
	default:
		*r = rest{}
	}
}

// longer returns for how long the pod must be idle.
func (r *rest) longer(after time.Duration) time.Duration { return after << r.short }
