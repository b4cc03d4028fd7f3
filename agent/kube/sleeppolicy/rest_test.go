package sleeppolicy

import (
	"testing"
	"time"
)

// TestRest: short sleeps make the next idle time longer, within bounds. A long one ends that.
func TestRest(t *testing.T) {
	const after = 10 * time.Second
	var r rest
	now := time.Unix(1000, 0)
	sleep := func(d time.Duration) {
		r.note(now, true, now, after)
		now = now.Add(d)
		r.note(time.Time{}, false, now, after)
		r.note(time.Time{}, false, now, after) // it is looked at again
	}
	for i, c := range []struct{ slept, want time.Duration }{
		{9 * time.Second, 20 * time.Second},
		{time.Second, 40 * time.Second},
		{time.Second, 80 * time.Second},
		{time.Second, 80 * time.Second},
		{10 * time.Second, after},
		{time.Second, 20 * time.Second},
	} {
		sleep(c.slept)
		if got := r.longer(after); got != c.want {
			t.Errorf("after sleep %d, of %v: idle for %v, want %v", i, c.slept, got, c.want)
		}
	}
}
