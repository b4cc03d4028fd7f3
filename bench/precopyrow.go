package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"diapause.dev/test/workload/answers"
)

// precopySample is one measurement.
type precopySample struct {
	share float64       // of the usual rate, while memory was stored; the usual one is the mean of those before and after
	after float64       // the rate after, as a share of that before: how steady the machine was
	took  time.Duration // to store the memory
}

func (s precopySample) String() string {
	return fmt.Sprintf("%.3f of the usual rate for %.0f ms (after to before: %.3f)", s.share, milliseconds(s.took),
		s.after)
}

// newPrecopySample compares the rate during the pre-copy with those before, and after calm.
func newPrecopySample(notes []answers.Done, o observed, calm time.Time) (s precopySample, err error) {
	if len(notes) == 0 {
		return s, errNoWork
	}
	before, err := workRate(notes, notes[0].At().Add(settleTime), o.begin)
	if err != nil {
		return s, err
	}
	during, err := workRate(notes, o.precopy, o.precopied)
	if err != nil {
		return s, err
	}
	after, err := workRate(notes, calm, notes[len(notes)-1].At())
	if err != nil {
		return s, err
	}
	return precopySample{
		share: during / ((before + after) / 2), after: after / before, took: o.precopied.Sub(o.precopy),
	}, nil
}

var errNoWork = errors.New("the pod did no work")

// workRate returns how many pieces of work were done in a second between two instants, by the notes that lie between
// them.
func workRate(notes []answers.Done, from, to time.Time) (float64, error) {
	first := slices.IndexFunc(notes, func(d answers.Done) bool { return !d.At().Before(from) })
	last := len(notes) - 1
	for last >= 0 && notes[last].At().After(to) {
		last--
	}
	if first < 0 || last <= first || notes[last].Pieces <= notes[first].Pieces {
		return 0, errNoWork
	}
	took := notes[last].At().Sub(notes[first].At())
	return float64(notes[last].Pieces-notes[first].Pieces) / took.Seconds(), nil
}

// precopyRow is the outcome of one mode with one kind of work.
type precopyRow struct {
	Work    string  `json:"work"`
	Threads int     `json:"threads"`
	Mode    string  `json:"mode"`
	MemMiB  int     `json:"mem_mib"`
	Share   float64 `json:"share_p50"` // of the usual rate, while memory was stored
	Least   float64 `json:"share_least"`
	After   float64 `json:"after_p50"`   // the rate after, as a share of that before
	Took    float64 `json:"took_p50_ms"` // to store the memory
	Most    float64 `json:"took_max_ms"`
	N       int     `json:"n"`
}

// newPrecopyRow sums up samples, of which there is at least one.
func newPrecopyRow(s *slowdown, mode string, mib int, samples []precopySample) precopyRow {
	r := precopyRow{Work: s.work, Threads: s.threads, Mode: mode, MemMiB: mib, N: len(samples)}
	r.Share = middle(samples, func(s precopySample) float64 { return s.share })
	r.After = middle(samples, func(s precopySample) float64 { return s.after })
	r.Took = milliseconds(middle(samples, func(s precopySample) time.Duration { return s.took }))
	r.Least = samples[0].share
	for _, s := range samples {
		r.Least, r.Most = min(r.Least, s.share), max(r.Most, milliseconds(s.took))
	}
	return r
}

// printPrecopy writes the table.
func printPrecopy(w io.Writer, rows []precopyRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "work\tthreads\tmode\tmem MiB\tshare p50\tleast\tafter / before\ttook p50 ms\tmax ms\tn\t")
	for i, r := range rows {
		if i > 0 && (rows[i-1].Work != r.Work || rows[i-1].Threads != r.Threads) {
			fmt.Fprintln(t, "\t\t\t\t\t\t\t\t\t\t")
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%.3f\t%.3f\t%.3f\t%.0f\t%.0f\t%d\t\n", r.Work, r.Threads, r.Mode, r.MemMiB, r.Share,
			r.Least, r.After, r.Took, r.Most, r.N)
	}
	return t.Flush()
}
