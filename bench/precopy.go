package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// precopyName is the benchmark of how far a pod is slowed down while its memory is stored before the pause.
const precopyName = "precopy"

// The modes of the benchmark.
const (
	modeGivesWay = "gives-way" // as the agent does by default
	modeAtOnce   = "at-once"   // with --precopy-time=0
)

var (
	precopyModes = []string{modeGivesWay, modeAtOnce}
	precopyWorks = []string{"memory", "syscalls"}
)

// precopyPlan says what is to be measured.
type precopyPlan struct {
	mem     []int // sizes of the pod's memory, in MiB
	works   []string
	threads []int
	modes   []string
	flags   []string // further ones of the agent
	n       int
}

func parsePrecopy(args []string) (p precopyPlan, err error) {
	f := flag.NewFlagSet("bench "+precopyName, flag.ContinueOnError)
	mem := f.String("mem", "1024", "`sizes` of the pod's memory, in MiB")
	works := f.String("work", strings.Join(precopyWorks, ","), "what the pod does meanwhile")
	threads := f.String("threads", strconv.Itoa(runtime.NumCPU()), "`numbers` of threads that do it")
	modes := f.String("modes", strings.Join(precopyModes, ","), "`modes` to measure")
	flags := f.String("flags", "", "further `flags` of the agent, separated by spaces")
	f.IntVar(&p.n, "n", 5, "`checkpoints` of each mode")
	if err := f.Parse(args); err != nil {
		return p, err
	}
	if f.NArg() > 0 || p.n < 1 || p.n > maxN {
		return p, fmt.Errorf("want flags only, and --n of 1 to %d", maxN)
	}
	if p.mem, err = numbers("--mem", *mem, 1, maxMiB); err != nil {
		return p, err
	}
	if p.threads, err = numbers("--threads", *threads, 1, maxPieces); err != nil {
		return p, err
	}
	p.flags = strings.Fields(*flags)
	if p.works, err = some("--work", *works, precopyWorks); err != nil {
		return p, err
	}
	p.modes, err = some("--modes", *modes, precopyModes)
	return p, err
}

// some returns the words of a flag, which are separated by commas and must be among those known.
func some(flag, list string, known []string) (words []string, err error) {
	words = strings.Split(list, ",")
	for _, w := range words {
		if !slices.Contains(known, w) {
			return nil, fmt.Errorf("%s: %.20q: want some of %s", flag, w, strings.Join(known, ","))
		}
	}
	return words, nil
}

func mainPrecopy(args []string) error {
	p, err := parsePrecopy(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	bed.Enter()
	return inContext(func(ctx context.Context) error { return runPrecopy(ctx, p) })
}

// runPrecopy measures on a node of its own, prints the table and writes the file.
func runPrecopy(ctx context.Context, p precopyPlan) (err error) {
	n, err := startNode(ctx, p.flags...)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n--- log of the agent:\n%s", err, tail(n.agentLog()))
		}
		err = errors.Join(err, n.close(context.WithoutCancel(ctx)))
	}()
	say("%s: load of the machine: %s", precopyName, machineLoad())
	var rows []precopyRow
	for _, mib := range p.mem {
		found, err := n.precopies(ctx, p, mib)
		if err != nil {
			return fmt.Errorf("%s of %d MiB: %w", precopyName, mib, err)
		}
		rows = append(rows, found...)
		if err := write(n.bed.Bin.Root, precopyName, rows); err != nil {
			return err
		}
	}
	say("%s: load of the machine: %s", precopyName, machineLoad())
	return printPrecopy(os.Stdout, rows)
}

// precopies measures a pod of one size.
func (n *node) precopies(ctx context.Context, p precopyPlan, mib int) (rows []precopyRow, err error) {
	pod, err := runWorkload(ctx, n, mib)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.bed.RemovePod(context.WithoutCancel(ctx), pod.ID)) }()
	for _, work := range p.works {
		for _, threads := range p.threads {
			name := fmt.Sprintf("%s: %d MiB: %s, %d threads", precopyName, mib, work, threads)
			s := &slowdown{node: n, pod: pod, work: work, threads: threads, flags: p.flags}
			samples, err := takeTurns(ctx, name, p.n, p.modes, s.measure)
			if err != nil {
				return nil, err
			}
			for _, mode := range p.modes {
				rows = append(rows, newPrecopyRow(s, mode, mib, samples[mode]))
			}
		}
	}
	return rows, nil
}

// slowdown measures the rate of a pod's work while its memory is stored.
type slowdown struct {
	*node
	pod     *bed.Pod
	work    string
	threads int
	flags   []string // of the agent
	count   int      // of checkpoints
}

// calmTime is for how long the rate is measured before and after.
const calmTime = 2 * time.Second

// measure has the pod work, makes a checkpoint, and compares the rate during the pre-copy with those before and after.
func (s *slowdown) measure(ctx context.Context, mode string) (x precopySample, err error) {
	s.count++
	flags := s.flags
	if mode == modeAtOnce {
		flags = append(slices.Clone(flags), "--precopy-time=0s")
	}
	if err := s.restartAgent(ctx, flags...); err != nil {
		return x, err
	}
	if err := s.turnWork(ctx, s.threads); err != nil {
		return x, err
	}
	defer func() { err = errors.Join(err, s.turnWork(context.WithoutCancel(ctx), 0)) }()
	if err := ask(ctx, s.pod, "/work?reset=1", nil); err != nil {
		return x, err
	}
	if err := sleep(ctx, settleTime+calmTime); err != nil {
		return x, err
	}
	c, err := s.observe(ctx, fmt.Sprintf("%s-%d", precopyName, s.count))
	if err != nil {
		return x, err
	}
	calm := time.Now().Add(settleTime)
	if err := sleep(ctx, settleTime+calmTime); err != nil {
		return x, err
	}
	var found answers.Work
	if err := ask(ctx, s.pod, "/work", &found); err != nil {
		return x, err
	}
	return newPrecopySample(found.Notes, c, calm)
}

func (s *slowdown) turnWork(ctx context.Context, threads int) error {
	return order(ctx, s.pod.IP, "/work?kind="+s.work+"&threads="+strconv.Itoa(threads))
}

// observed is when the stages of a checkpoint were.
type observed struct{ begin, precopy, precopied time.Time }

// observe makes a checkpoint, and removes it.
func (s *slowdown) observe(ctx context.Context, name string) (o observed, err error) {
	o.begin = time.Now()
	_, err = s.checkpointSeen(ctx, s.pod.ID, name, func(stage string) {
		switch {
		case stage == "precopy" && o.precopy.IsZero():
			o.precopy = time.Now()
		case stage != "precopy" && !o.precopy.IsZero() && o.precopied.IsZero():
			o.precopied = time.Now()
		}
	})
	if err != nil {
		return o, err
	}
	if o.precopied.IsZero() {
		return o, errors.New("nothing was stored before the pause")
	}
	return o, s.remove(ctx, name)
}
