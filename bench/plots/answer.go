package main

import (
	"gonum.org/v1/plot"
)

// wakeRow is what is drawn of a row of wake.json.
type wakeRow struct {
	Scenario string  `json:"scenario"`
	Mode     string  `json:"mode"`
	Touched  float64 `json:"touched_mib"`
	P50      float64 `json:"p50_ms"`
}

// drawAnswers draws the time to the first answer of all modes against what the request reads.
func drawAnswers(rows []wakeRow) (*plot.Plot, error) {
	all := lines(rows, func(r wakeRow) (string, float64, float64) {
		if r.Scenario != "first-answer" {
			return "", 0, 0
		}
		return r.Mode, r.Touched, r.P50
	})
	if len(all) == 0 {
		return nil, errNothing
	}
	p := newPlot("From the start of a sandbox to the first answer of its server", "MiB that the first request reads",
		"ms, p50")
	return p, addLines(p, all)
}
