package admission

import "time"

const (
	// patience is how long the wakes of one namespace that do not fit may hold back those that came later.
	patience = 10 * time.Second
	// recovery is how many times as long it takes to get patience back, while none of the namespace's wakes waits.
	recovery = 10
)

// patient is what a namespace has used of its patience. It does not begin anew when its last waiting wake leaves: a
// namespace could delete the pod then, and have another one wait.
type patient struct {
	since time.Time // when it would have begun to hold back others, had it done so ever since
	left  time.Time // when the last of its wakes has left; zero: one waits
}

// used returns how much is used.
func (p *patient) used(now time.Time) time.Duration {
	if p.left.IsZero() {
		return min(now.Sub(p.since), patience)
	}
	used := min(p.left.Sub(p.since), patience)
	return max(0, used-now.Sub(p.left)/recovery)
}

// leave notes that none of its wakes waits.
func (p *patient) leave(now time.Time) {
	if p.left.IsZero() { // or else those that have come since did not wait
		p.left = now
	}
}

// again notes that one of its wakes waits.
func (p *patient) again(now time.Time) {
	if !p.left.IsZero() {
		*p = patient{since: now.Add(-p.used(now))}
	}
}
