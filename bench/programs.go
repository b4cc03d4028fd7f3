package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"diapause.dev/bench/programs"
	"diapause.dev/test/bed"
)

// programsName is the benchmark of real programs.
const programsName = "programs"

// modeStock is what modeStockNone is called in the benchmark of programs.
const modeStock = "stock"

// programPlan says which programs are to be measured, and how.
type programPlan struct {
	programs []*programs.Program
	n        int
	cpu      []int
	modes    []string
	every    int // of how many rounds one measures the other modes, too
	runsc    string
}

// parsePrograms reads the flags of the benchmark of programs.
func parsePrograms(args []string) (p programPlan, err error) {
	f := flag.NewFlagSet("bench "+programsName, flag.ContinueOnError)
	names := f.String("programs", strings.Join(programs.Names(), ","), "`programs` to measure")
	cpu := f.String("cpu-limit-m", "0", "`limits` of the pod's processor time, in thousandths of a processor; 0: none")
	modes := f.String("modes", strings.Join(programModes, ","), "`modes` to measure")
	f.StringVar(&p.runsc, "runsc", runscStock, runscUsage)
	f.IntVar(&p.n, "n", 20, "`checkpoints` of each program")
	f.IntVar(&p.every, "others-every", 1, "other modes than diapause are measured once in so many `rounds`")
	if err := f.Parse(args); err != nil {
		return p, err
	}
	if f.NArg() > 0 || p.n < 1 || p.n > maxN {
		return p, fmt.Errorf("want flags only, and --n of 1 to %d", maxN)
	}
	if p.every < 1 || p.every > p.n {
		return p, fmt.Errorf("--others-every: want 1 to --n, %d", p.n)
	}
	if p.cpu, err = numbers("--cpu-limit-m", *cpu, 0, maxCPU); err != nil {
		return p, err
	}
	if p.programs, err = programs.ByName(strings.Split(*names, ",")); err != nil {
		return p, fmt.Errorf("--programs: %w", err)
	}
	p.modes = strings.Split(*modes, ",")
	for _, m := range p.modes {
		if !slices.Contains(programModes, m) {
			return p, fmt.Errorf("--modes: %.20q: want some of %s", m, strings.Join(programModes, ","))
		}
	}
	if p.modes[0] != modeDiapause {
		return p, fmt.Errorf("--modes: %s has to be the first", modeDiapause)
	}
	return p, nil
}

var programModes = []string{modeDiapause, modeFloor, modeStock}

// mainPrograms makes the images outside of the bed, where there is a network, and measures inside.
func mainPrograms(args []string) error {
	p, err := parsePrograms(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if !bed.Inside() {
		if err := inContext(func(ctx context.Context) error { return makeImages(ctx, p.programs) }); err != nil {
			return err
		}
	}
	bed.Enter()
	return inContext(func(ctx context.Context) error { return runPrograms(ctx, p) })
}

// runPrograms measures on a node of its own, and prints the table, also of what was measured before a program failed.
// The file is written after each program.
func runPrograms(ctx context.Context, p programPlan) (err error) {
	n, err := startNodeWith(ctx, nodeOptions{runsc: p.runsc, logs: logDir})
	if err != nil {
		return err
	}
	var rows []programRow
	defer func() {
		if len(rows) > 0 {
			err = errors.Join(err, printPrograms(os.Stdout, rows))
		}
		err = errors.Join(err, n.close(context.WithoutCancel(ctx)))
	}()
	for _, n.cpuLimit = range p.cpu {
		for _, program := range p.programs {
			row, err := n.program(ctx, program, p)
			if err != nil {
				return fmt.Errorf("program %s: %w\n--- log of the agent:\n%s", program.Name, err, tail(n.agentLog()))
			}
			rows = append(rows, row)
			if err := write(n.bed.Bin.Root, programsName, rows); err != nil {
				return err
			}
			if row.Lost > 0 {
				return fmt.Errorf("program %s: %d acknowledged writes were lost", program.Name, row.Lost)
			}
		}
	}
	return nil
}

// machineLoad returns the load averages of the machine, which tell whether it was quiet.
func machineLoad() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}

// tail returns the end of a log.
func tail(log string) string { return log[max(0, len(log)-tailBytes):] }

const tailBytes = 8 << 10

// program measures one program.
func (n *node) program(ctx context.Context, program *programs.Program, p programPlan) (row programRow, err error) {
	say("%s: preparing; load of the machine %s", program.Name, machineLoad())
	t, err := startTrial(ctx, n, program)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, t.close(context.WithoutCancel(ctx))) }()
	if err := t.rounds(ctx, p); err != nil {
		return row, fmt.Errorf("%w\n--- what the program has written:\n%s", err, t.output(ctx, t.pod))
	}
	return t.row(p.runsc), nil
}

// rounds makes all checkpoints, in turns, and then looks at the origin. The first round does not count.
func (t *trial) rounds(ctx context.Context, p programPlan) error {
	for i := range p.n + 1 {
		for _, mode := range p.modes {
			if mode != modeDiapause && i%p.every != 0 {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, programTime)
			err := t.measure(ctx, mode, i)
			cancel()
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", mode, i, err)
			}
		}
	}
	return t.checkOrigin(ctx)
}

// imageLink is the path of the archive with a program's image.
func imageLink(root string, p *programs.Program) string {
	return filepath.Join(root, ".cache", "images", p.Name+".tar")
}

// importImage gives containerd the image of a program.
func (n *node) importImage(ctx context.Context, p *programs.Program) error {
	begin := time.Now()
	if err := n.bed.Containerd.Import(ctx, imageLink(n.bed.Bin.Root, p)); err != nil {
		return err
	}
	say("%s: image imported in %.1f s", p.Name, time.Since(begin).Seconds())
	return nil
}
