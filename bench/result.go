package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// row is the outcome of one mode with one size of memory.
type row struct {
	Mode   string  `json:"mode"`
	MemMiB int     `json:"mem_mib"`
	CPU    int     `json:"cpu_limit_m"` // limit of the pod's processor time, in thousandths of a processor; 0: none
	P50    float64 `json:"p50_ms"`
	P90    float64 `json:"p90_ms"`
	Max    float64 `json:"max_ms"`
	N      int     `json:"n"`
}

// newRow sums up samples, of which there is at least one.
func newRow(mode string, mib, cpu int, samples []time.Duration) row {
	samples = slices.Sorted(slices.Values(samples))
	return row{
		Mode: mode, MemMiB: mib, CPU: cpu, N: len(samples),
		P50: percentile(samples, 50), P90: percentile(samples, 90), Max: percentile(samples, 100),
	}
}

// percentile returns, in milliseconds to the microsecond, the least of the sorted samples that at
// least p percent of them do not exceed.
func percentile(sorted []time.Duration, p int) float64 {
	rank := (len(sorted)*p + 99) / 100
	return math.Round(milliseconds(sorted[max(rank, 1)-1])*1e3) / 1e3
}

// print writes the table. Each mode is compared with the base mode by its p50.
func (b *benchmark) print(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "mode\tmem MiB\tcpu m\tp50 ms\tp90 ms\tmax ms\tp50 / %s\tn\t\n", b.base)
	for i, r := range rows {
		if i > 0 && (rows[i-1].MemMiB != r.MemMiB || rows[i-1].CPU != r.CPU) {
			fmt.Fprintln(t, "\t\t\t\t\t\t\t\t")
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.1f\t%.1f\t%.1f\t%s\t%d\t\n", r.Mode, r.MemMiB, r.limit(), r.P50, r.P90, r.Max,
			b.ratio(rows, r), r.N)
	}
	return t.Flush()
}

// limit is the limit of processor time as the table shows it.
func (r row) limit() string {
	if r.CPU == 0 {
		return "-"
	}
	return strconv.Itoa(r.CPU)
}

// ratio compares a row with that of the base mode, if that was measured.
func (b *benchmark) ratio(rows []row, r row) string {
	for _, base := range rows {
		if base.Mode == b.base && base.MemMiB == r.MemMiB && base.CPU == r.CPU {
			return fmt.Sprintf("%.2f", r.P50/base.P50)
		}
	}
	return "-"
}

// write writes what was found to a file of bench/out below the root of the repository.
func write(root, name string, found any) error {
	dir := filepath.Join(root, "bench", "out")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	data, err := json.MarshalIndent(found, "", "  ")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	path := filepath.Join(dir, name+".json")
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	say("%s: wrote %s", name, path)
	return nil
}
