package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// slowest is how many tests are listed.
const slowest = 20

// report is what a run of the suite has found.
type report struct {
	wall     time.Duration
	phases   []phaseReport
	tests    []*test            // without those of no name
	cpu      map[string]float64 // seconds, by package
	failures []failure
	// short says why the run was cut short, if it was.
	short error
}

// phaseReport is what one phase has found.
type phaseReport struct {
	outcome
	passed, failed, skipped int
}

// report reads what the phases have left.
func (s *suite) report(outcomes []outcome, wall time.Duration, short error) *report {
	r := &report{wall: wall, short: short, cpu: map[string]float64{}}
	for _, o := range outcomes {
		r.add(s, o)
	}
	return r
}

func (r *report) add(s *suite, o outcome) {
	p := phaseReport{outcome: o}
	tests, err := readEvents(o.phase.name, s.file(o.phase, jsonExt))
	if err == nil {
		err = readUsage(s.root, s.file(o.phase, usageExt), r.cpu)
	}
	var failures []failure
	if tests != nil {
		failures = s.failures(tests)
		for _, t := range tests.tests {
			p.count(t)
			if t.name != "" {
				r.tests = append(r.tests, t)
			}
		}
	}
	if len(failures) > 0 && err == nil {
		o.err = nil // it is said already
	}
	if err = errors.Join(o.err, err); err != nil {
		failures = append(failures, failure{phase: o.phase.name, name: "the whole phase", lines: []string{err.Error()}})
	}
	p.failed = len(failures)
	r.failures = append(r.failures, failures...)
	r.phases = append(r.phases, p)
}

func (p *phaseReport) count(t *test) {
	switch {
	case t.name == "":
	case t.action == "pass":
		p.passed++
	case t.action == "skip":
		p.skipped++
	}
}

// ok reports whether all has run, and nothing failed.
func (r *report) ok() bool { return r.short == nil && len(r.failures) == 0 }

// print prints the report. Its last line is the sum.
func (r *report) print(out io.Writer) {
	r.printPhases(out)
	r.printCPU(out)
	r.printSlowest(out)
	r.printFailures(out)
	if r.short != nil {
		fmt.Fprintf(out, "\nThe run was cut short: %v.\n", r.short)
	}
	var passed, skipped int
	for _, p := range r.phases {
		passed, skipped = passed+p.passed, skipped+p.skipped
	}
	line := fmt.Sprintf("\n%d passed, %d failed", passed, len(r.failures))
	if skipped > 0 {
		line += fmt.Sprintf(", %d skipped", skipped)
	}
	fmt.Fprintln(out, line)
}

func (r *report) printPhases(out io.Writer) {
	fmt.Fprintln(out, "\nPhases; their CPU seconds include compilers:")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "wall\tCPU s\ttests\tfailed\t  phase")
	var cpu time.Duration
	var tests int
	for _, p := range r.phases {
		n := p.passed + p.failed + p.skipped
		cpu, tests = cpu+p.cpu, tests+n
		name := p.phase.name
		if !p.ran {
			name += " (did not run)"
		}
		row(w, p.wall, p.cpu, n, p.failed, name)
	}
	row(w, r.wall, cpu, tests, len(r.failures), "all")
	w.Flush()
}

// row prints the line of a phase. The name stands last, and so the columns of figures are aligned.
func row(w io.Writer, wall, cpu time.Duration, tests, failed int, name string) {
	fmt.Fprintf(w, "%v\t%.1f\t%d\t%d\t  %s\n", wall.Round(time.Second), cpu.Seconds(), tests, failed, name)
}

func (r *report) printCPU(out io.Writer) {
	fmt.Fprintln(out, "\nCPU seconds of each package's tests, in all phases:")
	names := slices.SortedFunc(maps.Keys(r.cpu), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.cpu[b], r.cpu[a]), strings.Compare(a, b))
	})
	for _, name := range names {
		fmt.Fprintf(out, "%8.1f  %s\n", r.cpu[name], name)
	}
}

// printSlowest lists tests without their subtests, whose time is theirs.
func (r *report) printSlowest(out io.Writer) {
	list := slices.DeleteFunc(slices.Clone(r.tests), func(t *test) bool {
		return strings.Contains(t.name, "/") || t.action == ""
	})
	slices.SortStableFunc(list, func(a, b *test) int { return cmp.Compare(b.seconds, a.seconds) })
	list = list[:min(slowest, len(list))]
	fmt.Fprintf(out, "\nThe slowest %d tests, in seconds:\n", len(list))
	for _, t := range list {
		fmt.Fprintf(out, "%8.1f  %s (%s)\n", t.seconds, t.id(), t.phase)
	}
}

func (r *report) printFailures(out io.Writer) {
	for i, f := range r.failures {
		if i == 0 {
			fmt.Fprintln(out, "\nFailed:")
		}
		fmt.Fprintf(out, "%s (%s)\n", f.name, f.phase)
		printLines(out, f.lines)
	}
}
