package loading

import (
	"testing"

	"diapause.dev/runsc/gofer"
)

// TestPolicy: what a sandbox waits for, or will wait for, goes before the rest.
func TestPolicy(t *testing.T) {
	p := policy{startPause: 1, needPause: 2, herePause: 3, promptPause: 4, nodePause: 5}
	now, later := gofer.Pace{Turns: true}, gofer.Pace{Turns: true, GivesWay: true}
	for name, c := range map[string]struct {
		s    situation
		want gofer.Pace
	}{
		"far, and nobody waits":            {situation{}, gofer.Pace{}},
		"far, there, and nobody waits":     {situation{there: true}, gofer.Pace{}},
		"far, at the start":                {situation{starts: true, there: true}, gofer.Pace{Pause: 1}},
		"far, and it waits":                {situation{needed: true}, gofer.Pace{Pause: 2}},
		"far, and its need is fetched":     {situation{fetching: true}, gofer.Pace{Pause: 2}},
		"far, it waits, and this is there": {situation{needed: true, there: true}, gofer.Pace{Pause: 3}},
		"far, expected and there":          {situation{expected: true, there: true, starts: true}, now},
		"far, expected, and on its way":    {situation{expected: true, fetching: true}, gofer.Pace{Pause: 3}},
		"far, expected, and not fetched":   {situation{expected: true, needed: true}, gofer.Pace{Pause: 2}},
		"here, expected and decoded":       {situation{onNode: true, expected: true, there: true}, now},
		"here, expected, and it waits":     {situation{onNode: true, expected: true, needed: true}, now},
		"here, expected, and nobody waits": {situation{onNode: true, expected: true}, later},
		"here, and nobody waits":           {situation{onNode: true}, later},
		"here, and it waits":               {situation{onNode: true, needed: true}, now},
		"here, it waits, and was told": {
			situation{onNode: true, needed: true, patient: true}, gofer.Pace{Pause: 4, Turns: true},
		},
		"here, and a checkpoint waits for it": {situation{onNode: true, urgent: true, hurry: true, patient: true}, now},
		"here, and another one waits": {
			situation{onNode: true, hurry: true}, gofer.Pace{Pause: 5, Turns: true, GivesWay: true},
		},
	} {
		if got := p.pace(c.s); got != c.want {
			t.Errorf("%s: pace %+v, want %+v", name, got, c.want)
		}
	}
}
