package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
)

// flake is a test, a package or a phase that failed in some runs.
type flake struct {
	failure       // in the first of them
	runs    []int // from 1 on
}

// flakes collects what failed in several runs.
type flakes struct {
	runs   int
	loaded []int // the runs beside busy loops
	short  []int // the runs that were cut short
	list   []*flake
}

// add adds what the next run has found.
func (f *flakes) add(r *report, loaded bool) {
	f.runs++
	if loaded {
		f.loaded = append(f.loaded, f.runs)
	}
	if r.short != nil {
		f.short = append(f.short, f.runs)
	}
	for _, failed := range r.failures {
		i := slices.IndexFunc(f.list, func(k *flake) bool { return k.phase == failed.phase && k.name == failed.name })
		if i < 0 {
			i, f.list = len(f.list), append(f.list, &flake{failure: failed})
		}
		f.list[i].runs = append(f.list[i].runs, f.runs)
	}
}

// ok reports whether nothing has failed in any run.
func (f *flakes) ok() bool { return f.runs > 0 && len(f.list) == 0 && len(f.short) == 0 }

// print prints what failed, most often first.
func (f *flakes) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d runs; beside busy loops: %v; cut short: %v. What failed:\n", f.runs, f.loaded, f.short)
	slices.SortStableFunc(f.list, func(a, b *flake) int { return len(b.runs) - len(a.runs) })
	for _, k := range f.list {
		fmt.Fprintf(out, "%d of %d: %s (%s), runs %v\n", len(k.runs), f.runs, k.name, k.phase, k.runs)
		printLines(out, k.lines)
	}
	if len(f.list) == 0 {
		fmt.Fprintln(out, "nothing")
	}
}

// repeat runs the suite so many times by once, each second time beside busy loops, until ctx ends. The files of each
// run stay in a directory of its own.
func (s *suite) repeat(ctx context.Context, times, load int, once func(*suite) *report) (*flakes, error) {
	f := &flakes{}
	for i := 1; i <= times && ctx.Err() == nil; i++ {
		run, loops := *s, 0
		run.results = fmt.Sprintf("%s/run-%d", s.results, i)
		if i%2 == 0 || times == 1 {
			loops = load
		}
		stop, err := s.burn(loops)
		if err != nil {
			return f, err
		}
		fmt.Fprintf(s.out.w, "\nRun %d of %d, beside %d busy loops\n", i, times, loops)
		r := once(&run)
		stop()
		r.print(s.out.w)
		f.add(r, loops > 0)
	}
	return f, nil
}

// burn starts so many busy loops, each in a process of its own. They end by stop, or with this process.
func (s *suite) burn(loops int) (stop func(), err error) {
	var end []func()
	stop = func() {
		for _, f := range end {
			f()
		}
	}
	for range loops {
		cmd := exec.Command(s.self, "spin")
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			stop()
			return nil, fmt.Errorf("start a busy loop: %w", err)
		}
		end = append(end, func() { _ = errors.Join(in.Close(), cmd.Wait()) }) // it cannot fail but by being killed
	}
	return stop, nil
}

// spin keeps a processor busy until its standard input ends.
func spin() error {
	var ended atomic.Bool
	go func() {
		for !ended.Load() { // this is the load
		}
	}()
	_, err := io.Copy(io.Discard, os.Stdin)
	ended.Store(true)
	return err
}

// printLines prints the lines of a failure below its name.
func printLines(out io.Writer, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(out, "    %s\n", strings.TrimPrefix(line, "    "))
	}
}
