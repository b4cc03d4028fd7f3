// Command sleep measures how pods fall asleep, sleep and wake, on nodes of its own: a real containerd, runsc, shim and
// agent. It prints a table and writes bench/out/sleep.json, a list of {scenario, metric, value, unit}. README.md says
// what the scenarios are.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/test/bed"
)

func main() {
	p, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-sleep:", err)
		os.Exit(2)
	}
	bed.SetRunsc(p.runsc)
	bed.Enter()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, p)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-sleep: failed:", err)
		os.Exit(1)
	}
}

// plan says what to measure, and how much of it.
type plan struct {
	scenarios []string
	runsc     string          // which build
	trials    int             // of wake and fall
	requests  int             // of traffic, to all pods together
	pods      int             // of dense and idle
	toWake    int             // pods that dense wakes
	idleTime  time.Duration   // of idle
	workTime  time.Duration   // of false
	slept     []time.Duration // of long: how long the pods sleep
}

// scenarios are the names of all scenarios.
var scenarios = []string{"wake", "fall", "traffic", "dense", "idle", "false", "ready", "unready", "loaded", "long"}

// maxPods is how many addresses a bed has for pods, less a few.
const maxPods = 240

func parse(args []string) (p plan, err error) {
	f := flag.NewFlagSet("sleep", flag.ContinueOnError)
	names := f.String("scenarios", strings.Join(scenarios[:len(scenarios)-1], ","), "what to measure; long takes its time")
	f.StringVar(&p.runsc, "runsc", "runsc", "the build: runsc is gVisor's own, runsc-fast the repaired one")
	f.IntVar(&p.trials, "n", 20, "measurements of each size in wake and fall")
	f.IntVar(&p.requests, "requests", 10000, "requests of traffic")
	f.IntVar(&p.pods, "pods", 200, "pods of dense and idle")
	f.IntVar(&p.toWake, "wakes", math.MaxInt, "pods that dense wakes at most; by default all")
	f.DurationVar(&p.idleTime, "idle-time", time.Minute, "how long idle measures")
	f.DurationVar(&p.workTime, "work-time", 10*time.Minute, "how long the pods of false work")
	slept := f.String("slept", "1m,10m", "how long the pods of long sleep")
	if err := f.Parse(args); err != nil {
		return p, err
	}
	for _, s := range strings.Split(*slept, ",") {
		d, err := time.ParseDuration(s)
		if err != nil {
			return p, fmt.Errorf("--slept: %w", err)
		}
		p.slept = append(p.slept, d)
	}
	p.scenarios = strings.Split(*names, ",")
	for _, s := range p.scenarios {
		if !slices.Contains(scenarios, s) {
			return p, fmt.Errorf("--scenarios: %.40q: want some of %s", s, strings.Join(scenarios, ","))
		}
	}
	if f.NArg() > 0 || min(p.trials, p.requests, p.pods, p.toWake) < 1 || p.pods > maxPods {
		return p, fmt.Errorf("want flags only, numbers of 1 or more, and --pods of at most %d", maxPods)
	}
	return p, nil
}

func (p plan) wants(scenario string) bool { return slices.Contains(p.scenarios, scenario) }

// group is scenarios that share a node.
type group struct {
	scenarios []string
	agent     []string // flags of its agent, by default without pods that are ready to wake
	run       func(*meter, context.Context) error
}

var groups = []group{
	{[]string{"wake", "fall"}, nil, (*meter).wakes},
	{[]string{"traffic"}, nil, (*meter).traffic},
	// The agent's choice between the codecs goes by speed alone. For pods that are many and sleep long, space counts.
	{[]string{"dense", "idle"}, []string{"--codec=zstd"}, (*meter).crowd},
	{[]string{"false"}, nil, (*meter).works},
	{[]string{"ready", "unready", "loaded"}, []string{"--ready-memory=1073741824"}, (*meter).ready},
	{[]string{"long"}, nil, (*meter).long}, // the agent itself makes no pod ready
}

// run measures group by group, and writes what it has after each.
func run(ctx context.Context, p plan) error {
	for _, g := range groups {
		if !slices.ContainsFunc(g.scenarios, p.wants) {
			continue
		}
		m := &meter{plan: p}
		err := m.onNode(ctx, g)
		m.figures.print(os.Stdout) // of a failure, what was measured before it
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(g.scenarios, ","), err)
		}
		if err := m.figures.write(filepath.Join(m.bed.Bin.Root, "bench", "out", "sleep.json")); err != nil {
			return err
		}
	}
	return nil
}

// metricsAddress is where the agent serves its metrics.
const metricsAddress = "127.0.0.1:9464"

// meter measures on one node.
type meter struct {
	plan
	bed     *bed.Bed
	daemon  *bed.Agent
	agent   localv1.AgentClient
	figures figures
}

// onNode starts a node and measures on it.
func (m *meter) onNode(ctx context.Context, g group) (err error) {
	if m.bed, err = bed.Start(ctx, bed.Options{}); err != nil {
		return err
	}
	defer m.bed.Close(context.WithoutCancel(ctx))
	flags := append([]string{"--metrics=" + metricsAddress, "--ready-memory=0"}, g.agent...)
	m.daemon, err = m.bed.StartAgent(ctx, flags...)
	if err != nil {
		return err
	}
	conn, err := m.bed.DialAgent()
	if err != nil {
		return err
	}
	defer conn.Close()
	m.agent = localv1.NewAgentClient(conn)
	before := machineLoad()
	if err := g.run(m, ctx); err != nil {
		return fmt.Errorf("%w\n--- log of the agent:\n%s", err, tail(m.daemon.Log()))
	}
	for _, s := range g.scenarios {
		if m.wants(s) {
			m.figures.add(s, figure{Metric: "load_before", Value: before}, figure{Metric: "load_after", Value: machineLoad()})
		}
	}
	return nil
}

// say prints a line about what is going on.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// tail returns the end of a log.
func tail(log string) string {
	const most = 8 << 10
	return log[max(0, len(log)-most):]
}
