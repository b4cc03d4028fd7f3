// Command suite runs the phases of the test suite, several at once, and reports what each has cost and what has failed.
// It is run at the root of the module. What phases print has their names in front. The events of their tests stay in
// .cache/test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"diapause.dev/test/tools"
)

// grace is how long phases may take to end after an interrupt. A bed ends its pods and removes its mounts.
const grace = time.Minute

// options are what the command line says.
type options struct {
	phases []string
	lanes  int
	limit  time.Duration
	flake  int
	load   int
	cover  bool
}

func main() {
	code, err := role(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// role plays the role that the first argument names: "exec" runs a test binary for go test, "spin" is a busy loop. All
// others run the suite.
func role(args []string) (int, error) {
	switch {
	case len(args) > 1 && args[0] == "exec":
		return execute(args[1:])
	case len(args) == 1 && args[0] == "spin":
		return 0, spin()
	}
	var o options
	names := flag.String("phase", "", "phases to run, separated by commas, instead of all")
	flag.IntVar(&o.lanes, "lanes", len(lanes), "how many lanes run at the same time; 1 runs one phase after the other")
	flag.DurationVar(&o.limit, "limit", 85*time.Minute, "when to interrupt a run, for a report that says how far it came")
	flag.IntVar(&o.flake, "flake", 0, "run everything so many times, and say how often each test failed")
	flag.IntVar(&o.load, "load", 2, "with -flake: how many busy loops each second run has beside it")
	flag.BoolVar(&o.cover, "cover", false, "count the statements that tests and programs reach; everything is slower")
	flag.Parse()
	if *names != "" {
		o.phases = strings.Split(*names, ",")
	}
	if flag.NArg() > 0 || o.lanes < 1 {
		return 2, fmt.Errorf("unknown argument %q, or no lanes: see -help", flag.Args())
	}
	return start(o)
}

// start runs the suite, once or several times, unless a signal ends it early.
func start(o options) (int, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() { cancel(fmt.Errorf("signal: %v", <-signals)) }()
	for _, name := range o.phases {
		if len(schedule(phases, lanes, []string{name})) == 0 {
			return 2, fmt.Errorf("no phase is called %q", name)
		}
	}
	list := schedule(phases, lanes, o.phases)
	s, err := newSuite(ctx, slices.Concat(list...))
	if err != nil {
		return 1, err
	}
	once := func(s *suite) *report { return s.once(ctx, list, o) }
	if o.flake > 0 {
		f, err := s.repeat(ctx, o.flake, o.load, once)
		f.print(os.Stdout)
		return status(f.ok()), err
	}
	if o.cover {
		if s.cover, err = newCoverage(filepath.Join(s.root, s.results, "cover")); err != nil {
			return 1, err
		}
	}
	r := once(s)
	if o.cover {
		err = s.cover.print(ctx, os.Stdout)
	}
	r.print(os.Stdout)
	return status(r.ok()), err
}

// status is the exit status.
func status(ok bool) int {
	if ok {
		return 0
	}
	return 1
}

// newSuite finds or builds what the phases need, except what beds build.
func newSuite(ctx context.Context, list []phase) (*suite, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(root, "test", "suite")); err != nil {
		return nil, errors.New("run it at the root of the module")
	}
	if slices.ContainsFunc(list, phase.raced) {
		if err := tools.Compiler(ctx); err != nil {
			return nil, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	gotestsum, err := findGotestsum(ctx)
	out := &output{w: os.Stdout}
	return &suite{root: root, results: ".cache/test", self: self, gotestsum: gotestsum, out: out, grace: grace}, err
}

// once runs the lanes and reports. A run that takes longer than the limit is cut short.
func (s *suite) once(ctx context.Context, lanes [][]phase, o options) *report {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(o.limit, func() { cancel(fmt.Errorf("it took longer than %v", o.limit)) }).Stop()
	began := time.Now()
	outcomes := s.run(ctx, lanes, o.lanes)
	return s.report(outcomes, time.Since(began), context.Cause(ctx))
}
