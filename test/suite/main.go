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
}

func main() {
	code, err := role(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// role plays the role that the first argument names: "exec" runs a test binary for go test. All others run the suite.
func role(args []string) (int, error) {
	if len(args) > 1 && args[0] == "exec" {
		return execute(args[1:])
	}
	var o options
	names := flag.String("phase", "", "phases to run, separated by commas, instead of all")
	flag.IntVar(&o.lanes, "lanes", len(lanes), "how many lanes run at the same time; 1 runs one phase after the other")
	flag.DurationVar(&o.limit, "limit", 75*time.Minute, "when to interrupt a run, for a report that says how far it came")
	flag.Parse()
	if *names != "" {
		o.phases = strings.Split(*names, ",")
	}
	if flag.NArg() > 0 || o.lanes < 1 {
		return 2, fmt.Errorf("unknown argument %q, or no lanes: see -help", flag.Args())
	}
	return start(o)
}

// start runs the suite, unless a signal or the limit ends it early.
func start(o options) (int, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { cancel(fmt.Errorf("signal: %v", <-signals)) }()
	defer time.AfterFunc(o.limit, func() { cancel(fmt.Errorf("it took longer than %v", o.limit)) }).Stop()
	s, err := newSuite(ctx)
	if err != nil {
		return 1, err
	}
	list := schedule(phases, lanes, o.phases)
	if len(list) == 0 {
		return 2, fmt.Errorf("no phase is called %q", o.phases)
	}
	r := s.once(ctx, list, o.lanes)
	r.print(os.Stdout)
	if !r.ok() {
		return 1, nil
	}
	return 0, nil
}

// newSuite finds or builds what the phases need.
func newSuite(ctx context.Context) (*suite, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(root, "test", "suite")); err != nil {
		return nil, errors.New("run it at the root of the module")
	}
	if err := tools.Compiler(ctx); err != nil { // for the race detector
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	gotestsum, err := findGotestsum(ctx)
	s := &suite{root: root, self: self, gotestsum: gotestsum, out: &output{w: os.Stdout}, grace: grace}
	return s, errors.Join(err, os.MkdirAll(filepath.Join(root, results), 0o755))
}

// once runs the lanes and reports. What failed because the run was cut short is in the report, too.
func (s *suite) once(ctx context.Context, lanes [][]phase, most int) *report {
	began := time.Now()
	outcomes := s.run(ctx, lanes, most)
	return s.report(outcomes, time.Since(began), context.Cause(ctx))
}
