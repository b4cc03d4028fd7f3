package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// plan says what of a benchmark is to be measured.
type plan struct {
	mem   []int // sizes of the workload's memory, in MiB
	n     int   // measurements of each mode and size
	modes []string
}

// Bounds of a plan.
const (
	maxMiB = 16 << 10
	maxN   = 10_000
)

// parse returns the benchmark that the command line names, and what of it to measure.
func parse(args []string) (*benchmark, plan, error) {
	var p plan
	b := benchmarks[""]
	if len(args) > 0 {
		b = benchmarks[args[0]]
	}
	if b == nil {
		return nil, p, fmt.Errorf("want a benchmark: pause, loading or restore")
	}
	f := flag.NewFlagSet("bench "+b.name, flag.ContinueOnError)
	mem := f.String("mem", "64,256,1024", "`sizes` of the workload's memory, in MiB")
	modes := f.String("modes", strings.Join(b.modes, ","), "`modes` to measure")
	f.IntVar(&p.n, "n", 10, "`measurements` of each mode and size")
	if err := f.Parse(args[1:]); err != nil {
		return nil, p, err
	}
	if f.NArg() > 0 || p.n < 1 || p.n > maxN {
		return nil, p, fmt.Errorf("want flags only, and --n of 1 to %d", maxN)
	}
	for _, s := range strings.Split(*mem, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxMiB {
			return nil, p, fmt.Errorf("--mem: %.20q: want 1 to %d", s, maxMiB)
		}
		p.mem = append(p.mem, n)
	}
	p.modes = strings.Split(*modes, ",")
	for _, m := range p.modes {
		if !slices.Contains(b.modes, m) {
			return nil, p, fmt.Errorf("--modes: %.20q: want some of %s", m, strings.Join(b.modes, ","))
		}
	}
	return b, p, nil
}
