package main

import (
	"gonum.org/v1/plot"
)

// pauseRow is what is drawn of a row of pause.json.
type pauseRow struct {
	Mode   string  `json:"mode"`
	MemMiB float64 `json:"mem_mib"`
	CPU    int     `json:"cpu_limit_m"`
	P50    float64 `json:"p50_ms"`
}

// drawPause draws the pause of all modes against memory, of pods without a limit of processor time.
func drawPause(rows []pauseRow) (*plot.Plot, error) {
	all := lines(rows, func(r pauseRow) (string, float64, float64) {
		if r.CPU != 0 {
			return "", 0, 0
		}
		return r.Mode, r.MemMiB, r.P50
	})
	if len(all) == 0 {
		return nil, errNothing
	}
	p := newPlot("The pause of a checkpoint, as the workload sees it", "MiB of memory", "ms, p50")
	return p, addLines(p, all)
}
