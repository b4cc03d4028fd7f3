package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	localv1 "diapause.dev/api/local/v1"
)

// programRow is the outcome of one program.
type programRow struct {
	Program     string  `json:"program"`
	Runsc       string  `json:"runsc"`
	CPU         int     `json:"cpu_limit_m"` // limit of the pod's processor time, in thousandths of a processor; 0: none
	N           int     `json:"n"`
	PauseP50    float64 `json:"pause_p50_ms"`
	PauseMax    float64 `json:"pause_max_ms"`
	BeforeP50   float64 `json:"before_p50_ms"` // longest wait in as long a time before the checkpoint
	Stopping    float64 `json:"stopping_p50_ms"`
	KernelState float64 `json:"kernel_state_p50_ms"`
	Pages       float64 `json:"pages_p50_ms"`
	Resuming    float64 `json:"resuming_p50_ms"`
	FloorP50    float64 `json:"floor_p50_ms"` // 0: not measured
	StockP50    float64 `json:"stock_p50_ms"` // 0: not measured
	StateBytes  int64   `json:"state_bytes"`
	RawBytes    int64   `json:"raw_bytes"`
	StoredBytes int64   `json:"stored_bytes"`
	AnswerP50   float64 `json:"first_answer_p50_ms"`
	Sandbox     float64 `json:"first_answer_sandbox_p50_ms"`
	Start       float64 `json:"first_answer_start_p50_ms"`
	KernelLoad  float64 `json:"first_answer_kernel_load_p50_ms"` // part of Start
	Answer      float64 `json:"first_answer_rest_p50_ms"`
	AnswerN     int     `json:"first_answer_n"`
	Lost        int64   `json:"lost"`
}

// stateFile is the file of a snapshot with the state of the kernel.
const stateFile = "checkpoint.img"

// row sums up what was measured.
func (t *trial) row(runsc string) programRow {
	return programRow{
		Program: t.program.Name, Runsc: runsc, CPU: t.cpuLimit, N: len(t.parts), Lost: t.lost,
		PauseP50:    median(t.paused[modeDiapause], same),
		PauseMax:    milliseconds(slices.Max(t.paused[modeDiapause])),
		BeforeP50:   median(t.before, same),
		Stopping:    median(t.parts, func(p parts) time.Duration { return p.stopping }),
		KernelState: median(t.parts, func(p parts) time.Duration { return p.kernel }),
		Pages:       median(t.parts, func(p parts) time.Duration { return p.pages }),
		Resuming:    median(t.parts, func(p parts) time.Duration { return p.resuming }),
		FloorP50:    median(t.paused[modeFloor], same),
		StockP50:    median(t.paused[modeStock], same),
		StateBytes:  medianSize(t.sizes, stateBytes),
		RawBytes:    medianSize(t.sizes, (*localv1.Snapshot).GetRawBytes),
		StoredBytes: medianSize(t.sizes, (*localv1.Snapshot).GetStoredBytes),
		AnswerP50:   median(t.woken, wakeup.whole),
		Sandbox:     median(t.woken, func(w wakeup) time.Duration { return w.sandbox }),
		Start:       median(t.woken, func(w wakeup) time.Duration { return w.start }),
		KernelLoad:  median(t.woken, func(w wakeup) time.Duration { return w.kernel }),
		Answer:      median(t.woken, func(w wakeup) time.Duration { return w.answer }),
		AnswerN:     len(t.woken),
	}
}

func same(d time.Duration) time.Duration { return d }

// median returns the p50 of what of returns, in milliseconds; 0 if there is nothing.
func median[T any](list []T, of func(T) time.Duration) float64 {
	if len(list) == 0 {
		return 0
	}
	var d []time.Duration
	for _, x := range list {
		d = append(d, of(x))
	}
	slices.Sort(d)
	return percentile(d, 50)
}

func stateBytes(s *localv1.Snapshot) int64 {
	for _, f := range s.Files {
		if f.Name == stateFile {
			return f.Size
		}
	}
	return 0
}

// medianSize returns the median of a size of snapshots, of which there is at least one.
func medianSize(list []*localv1.Snapshot, of func(*localv1.Snapshot) int64) int64 {
	var sizes []int64
	for _, s := range list {
		sizes = append(sizes, of(s))
	}
	slices.Sort(sizes)
	return sizes[(len(sizes)-1)/2]
}

// printPrograms writes the table, as Markdown.
func printPrograms(w io.Writer, rows []programRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| program\t| runsc\t| cpu m\t| raw MiB\t| stored MiB\t| state KiB\t| pause p50\t| max\t| before"+
		"\t| stopping\t| kernel state\t| pages\t| resuming\t| floor\t| stock\t| first answer"+
		"\t| sandbox\t| start\t| (kernel state)\t| answer\t| lost\t| n\t|")
	fmt.Fprintln(t, "| ---"+string(slices.Concat(slices.Repeat([][]byte{[]byte("\t| ---")}, 21)...))+"\t|")
	for _, r := range rows {
		fmt.Fprintf(t, "| %s\t| %s\t| %s\t| %.1f\t| %.1f\t| %.0f", r.Program, r.Runsc, row{CPU: r.CPU}.limit(),
			inMiB(r.RawBytes), inMiB(r.StoredBytes), float64(r.StateBytes)/1024)
		for _, ms := range []float64{
			r.PauseP50, r.PauseMax, r.BeforeP50, r.Stopping, r.KernelState, r.Pages, r.Resuming, r.FloorP50, r.StockP50,
			r.AnswerP50, r.Sandbox, r.Start, r.KernelLoad, r.Answer,
		} {
			fmt.Fprintf(t, "\t| %.1f", ms)
		}
		fmt.Fprintf(t, "\t| %d\t| %d\t|\n", r.Lost, r.N)
	}
	return t.Flush()
}
