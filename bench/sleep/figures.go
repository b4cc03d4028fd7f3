package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// figure is one line of the result.
type figure struct {
	Scenario string  `json:"scenario"`
	Metric   string  `json:"metric"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
}

// figures are results, those of one scenario one after the other.
type figures []figure

// add adds figures of a scenario.
func (f *figures) add(scenario string, more ...figure) {
	for _, x := range more {
		x.Scenario = scenario
		*f = append(*f, x)
	}
}

// count is a figure without a unit.
func count[N int | int64](metric string, n N) figure {
	return figure{Metric: metric, Value: float64(n)}
}

// inMiB is a figure of memory or disk.
func inMiB(metric string, bytes float64) figure {
	return figure{Metric: metric, Value: round(bytes / (1 << 20)), Unit: "MiB"}
}

// round keeps three digits after the point.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// times are the measurements of one scenario.
type times []time.Duration

// figures returns the percentiles, nearest-rank.
func (t times) figures() []figure {
	if len(t) == 0 {
		return []figure{count("n", 0)}
	}
	t = slices.Sorted(slices.Values(t))
	at := func(name string, p int) figure {
		ms := float64(t[max((len(t)*p+99)/100, 1)-1]) / float64(time.Millisecond)
		return figure{Metric: name, Value: round(ms), Unit: "ms"}
	}
	return []figure{at("p50", 50), at("p90", 90), at("max", 100), count("n", len(t))}
}

// print writes a line for each scenario.
func (f figures) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	last := ""
	for _, x := range f {
		if x.Scenario != last {
			fmt.Fprintf(t, "\n%s", x.Scenario)
			last = x.Scenario
		}
		fmt.Fprintf(t, "\t%s", strings.TrimSpace(fmt.Sprintf("%s %g %s", x.Metric, x.Value, x.Unit)))
	}
	fmt.Fprintln(t)
	t.Flush()
}

// write replaces the scenarios that were measured in a file of figures. The others stay.
func (f figures) write(path string) error {
	old, err := read(path)
	if err != nil {
		return err
	}
	for _, x := range old {
		if !slices.ContainsFunc(f, func(y figure) bool { return head(y.Scenario) == head(x.Scenario) }) {
			f = append(f, x)
		}
	}
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// head returns the first part of the name of a scenario.
func head(scenario string) string {
	head, _, _ := strings.Cut(scenario, "/")
	return head
}

// read reads a file of figures, or none if there is none.
func read(path string) (f figures, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	return f, err
}
