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
	cpu   []int    // limits of the pod's processor time, in thousandths of a processor; 0: none
	keep  bool     // the agent leaves these limits alone
	dirty int      // MiB of memory that the workload writes in a second, in pages all over it
	agent []string // further flags of the agent
}

// flags returns the flags of the agent.
func (p plan) flags() []string {
	if p.keep {
		return append(p.agent, "--keep-cpu-limits")
	}
	return p.agent
}

// Bounds of a plan.
const (
	maxMiB = 16 << 10
	maxN   = 10_000
	maxCPU = 64_000

	maxDirty = 10_000
)

// parse returns the benchmark that the command line names, and what of it to measure.
func parse(args []string) (*benchmark, plan, error) {
	var p plan
	b := benchmarks[""]
	if len(args) > 0 {
		b = benchmarks[args[0]]
	}
	if b == nil {
		return nil, p, fmt.Errorf("want a benchmark: pause, precopy, loading, restore, programs or wake")
	}
	f := flag.NewFlagSet("bench "+b.name, flag.ContinueOnError)
	mem := f.String("mem", "64,256,1024", "`sizes` of the workload's memory, in MiB")
	modes := f.String("modes", strings.Join(b.modes, ","), "`modes` to measure")
	cpu := f.String("cpu-limit-m", "0", "`limits` of the pod's processor time, in thousandths of a processor; 0: none")
	f.BoolVar(&p.keep, "keep-cpu-limits", false, "have the agent leave the limits of processor time alone")
	f.IntVar(&p.dirty, "dirty", 0, "`MiB` of memory that the workload writes in a second, in pages all over it")
	agent := f.String("flags", "", "further `flags` of the agent, separated by spaces")
	f.IntVar(&p.n, "n", 10, "`measurements` of each mode and size")
	if err := f.Parse(args[1:]); err != nil {
		return nil, p, err
	}
	if f.NArg() > 0 || p.n < 1 || p.n > maxN {
		return nil, p, fmt.Errorf("want flags only, and --n of 1 to %d", maxN)
	}
	if p.dirty < 0 || p.dirty > maxDirty {
		return nil, p, fmt.Errorf("--dirty: want 0 to %d", maxDirty)
	}
	p.agent = strings.Fields(*agent)
	var err error
	if p.mem, err = numbers("--mem", *mem, 1, maxMiB); err != nil {
		return nil, p, err
	}
	if p.cpu, err = numbers("--cpu-limit-m", *cpu, 0, maxCPU); err != nil {
		return nil, p, err
	}
	p.modes = strings.Split(*modes, ",")
	for _, m := range p.modes {
		if !slices.Contains(b.modes, m) {
			return nil, p, fmt.Errorf("--modes: %.20q: want some of %s", m, strings.Join(b.modes, ","))
		}
	}
	return b, p, nil
}

// numbers returns the numbers of a flag, which are separated by commas.
func numbers(flag, list string, least, most int) (out []int, err error) {
	for _, s := range strings.Split(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("%s: %.20q: want %d to %d", flag, s, least, most)
		}
		out = append(out, n)
	}
	return out, nil
}
