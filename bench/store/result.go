package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// result is one figure. Bound is the same metric of what it is compared with, measured in the same
// run, if there is such a thing; in the file it has the name limit.
type result struct {
	Scenario string   `json:"scenario"`
	Metric   string   `json:"metric"`
	Value    float64  `json:"value"`
	Unit     string   `json:"unit"`
	Bound    *float64 `json:"limit"`
}

// The metrics that several scenarios have.
const (
	throughput  = "throughput" // of raw bytes
	seconds     = "seconds"
	storedBytes = "stored_bytes"
	requests    = "requests" // to the backend
	peakRSS     = "peak_rss" // anonymous memory of the process, so without the mapped test data
)

// The units.
const (
	mbPerSecond = "MB/s"
	second      = "s"
	byteUnit    = "bytes"
	count       = "count"
	share       = "share"
)

// results collects figures.
type results struct{ list []result }

// add adds a figure that has no bound.
func (r *results) add(scenario, metric string, value float64, unit string) {
	r.list = append(r.list, result{scenario, metric, rounded(value), unit, nil})
}

// bounded adds a figure with its bound.
func (r *results) bounded(scenario, metric string, value float64, unit string, bound float64) {
	bound = rounded(bound)
	r.list = append(r.list, result{scenario, metric, rounded(value), unit, &bound})
}

func rounded(v float64) float64 {
	if v >= 1000 {
		return math.Round(v)
	}
	return math.Round(v*1e4) / 1e4
}

// print writes the table.
func (r *results) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tmetric\tvalue\tbound\tvalue / bound\tunit\t")
	for i, x := range r.list {
		if i > 0 && r.list[i-1].Scenario != x.Scenario {
			fmt.Fprintln(t, "\t\t\t\t\t\t")
		}
		bound, ratio := "-", "-"
		if x.Bound != nil {
			bound, ratio = number(*x.Bound), fmt.Sprintf("%.3f", x.Value / *x.Bound)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", x.Scenario, x.Metric, number(x.Value), bound, ratio, x.Unit)
	}
	return t.Flush()
}

func number(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// write writes the list to a file.
func (r *results) write(path string) error {
	data, err := json.MarshalIndent(r.list, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
