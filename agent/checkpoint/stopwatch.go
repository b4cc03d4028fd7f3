package checkpoint

import (
	"time"

	"diapause.dev/api/snapshot"
)

// stopwatch measures consecutive stages: each begins where the one before ends.
type stopwatch struct {
	stages []snapshot.Stage
	last   time.Time
}

func newStopwatch() *stopwatch { return &stopwatch{last: time.Now()} }

// lap ends a stage now.
func (s *stopwatch) lap(stage string) { s.lapAt(stage, time.Now()) }

// lapAt ends a stage at t. If t is before the end of the stage before, the stage has length 0.
func (s *stopwatch) lapAt(stage string, t time.Time) {
	took := max(0, t.Sub(s.last))
	s.stages = append(s.stages, snapshot.Stage{Name: stage, Took: took})
	s.last = s.last.Add(took)
}
