package checkpoint

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/api/snapshot"
)

// TestStopwatchAddsUp: stages have no gap, even if times are out of order or were never set.
func TestStopwatchAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newStopwatch()
		time.Sleep(time.Second)
		s.lap("a")
		opened := time.Now().Add(time.Second)
		time.Sleep(5 * time.Second)
		s.lapAt("b", opened)
		s.lapAt("before the last", opened.Add(-time.Hour))
		s.lapAt("never", time.Time{})
		s.lap("rest")
		want := []snapshot.Stage{
			{Name: "a", Took: time.Second},
			{Name: "b", Took: time.Second},
			{Name: "before the last"},
			{Name: "never"},
			{Name: "rest", Took: 4 * time.Second},
		}
		if !slices.Equal(s.stages, want) {
			t.Errorf("stages %v, want %v", s.stages, want)
		}
		var sum time.Duration
		for _, st := range s.stages {
			sum += st.Took
		}
		if sum != time.Since(began) {
			t.Errorf("stages add up to %v of %v", sum, time.Since(began))
		}
	})
}
