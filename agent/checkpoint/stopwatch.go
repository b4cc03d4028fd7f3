package checkpoint

import (
	"time"

	"diapause.dev/api/snapshot"
)

// stopwatch measures stages that follow each other without a gap.
type stopwatch struct {
	stages []snapshot.Stage
	last   time.Time
}

func newStopwatch() *stopwatch { return &stopwatch{last: time.Now()} }

// lap ends a stage now.
func (s *stopwatch) lap(stage string) { s.lapAt(stage, time.Now()) }

// lapAt ends a stage at t. A time before the last stage's end makes it empty.
func (s *stopwatch) lapAt(stage string, t time.Time) {
	took := max(0, t.Sub(s.last))
	s.stages = append(s.stages, snapshot.Stage{Name: stage, Took: took})
	s.last = s.last.Add(took)
}
