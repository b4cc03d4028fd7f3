package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// wakeSample is one measurement.
type wakeSample struct {
	took  time.Duration
	bytes int64   // fetched before took was over
	share float64 // of the usual rate of a neighbour, meanwhile
	after float64 // the same once the new pod has all its memory
	agent float64 // MiB that the agent has grown by, at most
}

func (s wakeSample) String() string {
	text := fmt.Sprintf("%.1f ms", milliseconds(s.took))
	if s.bytes > 0 {
		text += fmt.Sprintf(", %.1f MiB fetched", inMiB(s.bytes))
	}
	if s.share > 0 {
		text += fmt.Sprintf(", %.2f of the usual rate, %.2f after it", s.share, s.after)
	}
	if s.agent > 0 {
		text += fmt.Sprintf(", the agent grew by %.1f MiB", s.agent)
	}
	return text
}

// wakeRow is the outcome of one mode of a scenario.
type wakeRow struct {
	Scenario string  `json:"scenario"`
	Mode     string  `json:"mode"`
	Runsc    string  `json:"runsc"`
	Stage    string  `json:"stage,omitempty"` // of the scenario ready: a part of the whole
	MemMiB   int     `json:"mem_mib"`
	Touched  int     `json:"touched_mib,omitempty"` // by the first request
	Pieces   int     `json:"pieces,omitempty"`      // that this lies in
	P50      float64 `json:"p50_ms"`
	P90      float64 `json:"p90_ms"`
	Max      float64 `json:"max_ms"`
	Bytes    int64   `json:"bytes_before"`        // median of what was fetched before the end; 0: nothing, or not measured
	Share    float64 `json:"share_p50,omitempty"` // of the usual rate of a neighbour, meanwhile
	After    float64 `json:"after_p50,omitempty"` // the same once the new pod has all its memory
	Agent    float64 `json:"agent_mib,omitempty"` // most that the agent has grown by, of all measurements
	UsualMS  float64 `json:"usual_ms,omitempty"`  // of a pass over all memory before the checkpoint
	N        int     `json:"n"`
}

// newWakeRow sums up samples, of which there is at least one.
func newWakeRow(scenario, mode string, mib int, samples []wakeSample) wakeRow {
	var took []time.Duration
	r := wakeRow{Scenario: scenario, Mode: mode, MemMiB: mib, N: len(samples)}
	for _, s := range samples {
		took = append(took, s.took)
		r.Agent = max(r.Agent, s.agent)
	}
	slices.Sort(took)
	r.P50, r.P90, r.Max = percentile(took, 50), percentile(took, 90), percentile(took, 100)
	r.Bytes = middle(samples, func(s wakeSample) int64 { return s.bytes })
	r.Share = middle(samples, func(s wakeSample) float64 { return s.share })
	r.After = middle(samples, func(s wakeSample) float64 { return s.after })
	return r
}

// middle returns the median of a part of the samples, of which there is at least one.
func middle[S any, T cmp.Ordered](samples []S, of func(S) T) T {
	var values []T
	for _, s := range samples {
		values = append(values, of(s))
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// printWake writes the table.
func printWake(w io.Writer, rows []wakeRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tmode\tstage\tmem MiB\ttouched MiB\tp50 ms\tp90 ms\tmax ms"+
		"\tfetched MiB\tshare\tafter\tagent MiB\tn\t")
	for i, r := range rows {
		if i > 0 && (rows[i-1].Scenario != r.Scenario || rows[i-1].Touched != r.Touched) {
			fmt.Fprintln(t, "\t\t\t\t\t\t\t\t\t\t\t\t\t")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%.1f\t%.1f\t%.1f\t%s\t%s\t%s\t%s\t%d\t\n", r.Scenario, r.Mode, r.Stage, r.MemMiB,
			unless0("%.0f", float64(r.Touched)), r.P50, r.P90, r.Max, unless0("%.1f", inMiB(r.Bytes)),
			unless0("%.2f", r.Share), unless0("%.2f", r.After), unless0("%.1f", r.Agent), r.N)
	}
	return t.Flush()
}

// unless0 formats a number, or returns "-" for 0.
func unless0(format string, x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf(format, x)
}
