package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"diapause.dev/test/bed"
)

// wakeName is the benchmark of what a restored pod does next.
const wakeName = "wake"

// The scenarios of the benchmark.
const (
	scenarioAnswer    = "first-answer"
	scenarioSpeed     = "full-speed"
	scenarioNeighbour = "neighbour"
	scenarioReady     = "ready"
	scenarioBranches  = "branches"
)

// The modes of the benchmark, besides modeHot, modeCold, modeStockNone, modeHotPod and modeColdPod.
const (
	modeWireFirst = "wire-first" // the node has nothing, and nobody has restored the snapshot
	modeWireAgain = "wire-again" // the node has nothing; the store has the working set of a restore
	modeWireBytes = "wire-bytes" // no sandbox: a client reads as many bytes as the request touches from that store
	modeEmpty     = "empty"      // no snapshot: the same server with 1 MiB is started
	modeOne       = "one"        // one branch
	modeEight     = "eight"      // eight branches at once
	modeOneCold   = "one-cold"   // a pod that starts without a snapshot, with 1 MiB
	modeEightCold = "eight-cold" // eight such pods at once
)

// wakeScenarios are the scenarios with their modes.
var wakeScenarios = []struct {
	name  string
	modes []string
}{
	{scenarioAnswer, []string{modeHot, modeCold, modeWireFirst, modeWireAgain, modeWireBytes, modeStockNone, modeEmpty}},
	{scenarioSpeed, []string{modeHot, modeCold, modeStockNone}},
	{scenarioNeighbour, []string{modeHot, modeWireAgain, modeStockNone, modeEmpty}},
	{scenarioReady, []string{modeHotPod, modeColdPod}},
	{scenarioBranches, []string{modeOne, modeEight, modeOneCold, modeEightCold}},
}

// wakePlan says what is to be measured.
type wakePlan struct {
	scenarios []string
	modes     []string // empty: all that a scenario has
	mem       []int    // sizes of the workload's memory, in MiB; of the scenario branches see branchMiB
	touch     []int    // how much of it the first request reads, in MiB
	pieces    int      // in how many pieces
	n         int
	runsc     string // see useRunsc
}

// modesOf returns the modes of a scenario that are to be measured.
func (p wakePlan) modesOf(scenario string) (modes []string) {
	for _, s := range wakeScenarios {
		if s.name != scenario || !slices.Contains(p.scenarios, scenario) {
			continue
		}
		for _, m := range s.modes {
			if len(p.modes) == 0 || slices.Contains(p.modes, m) {
				modes = append(modes, m)
			}
		}
	}
	return modes
}

// maxPieces bounds the pieces that a request reads.
const maxPieces = 1 << 10

// parseWake reads the flags of the benchmark.
func parseWake(args []string) (p wakePlan, err error) {
	f := flag.NewFlagSet("bench "+wakeName, flag.ContinueOnError)
	var names []string
	for _, s := range wakeScenarios {
		names = append(names, s.name)
	}
	scenarios := f.String("scenarios", strings.Join(names, ","), "`scenarios` to measure")
	modes := f.String("modes", "", "`modes` to measure; empty: all")
	mem := f.String("mem", "1024", "`sizes` of the workload's memory, in MiB")
	touch := f.String("touch", "20", "`sizes` of what the first request reads, in MiB")
	f.IntVar(&p.pieces, "pieces", 1, "`number` of pieces that this lies in, all over the memory")
	f.IntVar(&p.n, "n", 10, "`measurements` of each mode")
	f.StringVar(&p.runsc, "runsc", runscStock, runscUsage)
	if err := f.Parse(args); err != nil {
		return p, err
	}
	if f.NArg() > 0 || p.n < 1 || p.n > maxN || p.pieces < 1 || p.pieces > maxPieces {
		return p, fmt.Errorf("want flags only, --n of 1 to %d, and --pieces of 1 to %d", maxN, maxPieces)
	}
	if p.mem, err = numbers("--mem", *mem, 1, maxMiB); err != nil {
		return p, err
	}
	if p.touch, err = numbers("--touch", *touch, 1, slices.Min(p.mem)); err != nil {
		return p, err
	}
	p.scenarios = strings.Split(*scenarios, ",")
	for _, s := range p.scenarios {
		if !slices.Contains(names, s) {
			return p, fmt.Errorf("--scenarios: %.20q: want some of %s", s, strings.Join(names, ","))
		}
	}
	if *modes != "" {
		p.modes = strings.Split(*modes, ",")
	}
	return p, p.checkModes()
}

// checkModes returns an error if there is a mode that no scenario has.
func (p wakePlan) checkModes() error {
	for _, m := range p.modes {
		known := false
		for _, s := range wakeScenarios {
			known = known || slices.Contains(s.modes, m)
		}
		if !known {
			return fmt.Errorf("--modes: %.20q: no scenario has it", m)
		}
	}
	return nil
}

// mainWake runs the benchmark.
func mainWake(args []string) error {
	p, err := parseWake(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	bed.Enter()
	return inContext(func(ctx context.Context) error { return runWake(ctx, p) })
}

// runWake measures on a node of its own, and prints the table, also of what was measured before something failed. The
// file is written after each scenario.
func runWake(ctx context.Context, p wakePlan) (err error) {
	n, err := startNodeWith(ctx, nodeOptions{runsc: p.runsc})
	if err != nil {
		return err
	}
	var rows []wakeRow
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n--- log of the agent:\n%s", err, tail(n.agentLog()))
		}
		if len(rows) > 0 {
			err = errors.Join(err, printWake(os.Stdout, rows))
		}
		err = errors.Join(err, n.close(context.WithoutCancel(ctx)))
	}()
	add := func(more []wakeRow) error {
		for _, r := range more {
			r.Runsc = p.runsc
			rows = append(rows, r)
		}
		return write(n.bed.Bin.Root, wakeName, rows)
	}
	say("%s: load of the machine %s", wakeName, machineLoad())
	for _, mib := range p.mem {
		if err := n.wakeOf(ctx, p, mib, add); err != nil {
			return fmt.Errorf("%s of %d MiB: %w", wakeName, mib, err)
		}
	}
	if modes := p.modesOf(scenarioBranches); len(modes) > 0 {
		err = n.branches(ctx, p, modes, add)
	}
	say("%s: load of the machine %s", wakeName, machineLoad())
	return err
}

// wakeOf measures with one size of memory, and hands on the rows of each scenario.
func (n *node) wakeOf(ctx context.Context, p wakePlan, mib int, add func([]wakeRow) error) (err error) {
	scenarios := []struct {
		name    string
		measure func(w *wakes, ctx context.Context, modes []string) ([]wakeRow, error)
	}{
		{scenarioAnswer, (*wakes).firstAnswers},
		{scenarioSpeed, (*wakes).fullSpeeds},
		{scenarioNeighbour, (*wakes).neighbours},
		{scenarioReady, (*wakes).readies},
	}
	var w *wakes
	defer func() {
		if w != nil {
			err = errors.Join(err, w.close(context.WithoutCancel(ctx)))
		}
	}()
	for _, s := range scenarios {
		modes := p.modesOf(s.name)
		if len(modes) == 0 {
			continue
		}
		if w == nil {
			say("%s: %d MiB: preparing", wakeName, mib)
			if w, err = prepareWakes(ctx, n, p, mib); err != nil {
				return err
			}
		}
		rows, err := s.measure(w, ctx, modes)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := add(rows); err != nil {
			return err
		}
	}
	return nil
}
