package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// suite is what all phases share.
type suite struct {
	root      string
	results   string // where the files of the last run stay, below the root
	self      string // this program, which runs test binaries
	gotestsum string
	out       *output
	// grace is how long phases may take to end once they are told to.
	grace time.Duration
	cover *coverage // nil if nobody wants to know
}

// outcome is how a phase went.
type outcome struct {
	phase phase
	ran   bool
	wall  time.Duration
	cpu   time.Duration // of everything, compilers included
	err   error
}

// file is the path of a phase's file of results.
func (s *suite) file(p phase, ext string) string { return filepath.Join(s.root, s.results, p.name+ext) }

// run runs the lanes, at most so many at a time. It returns what became of each phase; when ctx ends, phases that run
// are interrupted, and the others do not begin.
func (s *suite) run(ctx context.Context, lanes [][]phase, most int) []outcome {
	if err := os.MkdirAll(filepath.Join(s.root, s.results), 0o755); err != nil {
		return []outcome{{phase: lanes[0][0], err: err}}
	}
	var out []outcome
	var group sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, most)
	for _, lane := range lanes {
		slots <- struct{}{}
		group.Go(func() {
			for _, p := range lane {
				o := s.runPhase(ctx, p)
				mu.Lock()
				out = append(out, o)
				mu.Unlock()
			}
			<-slots
		})
	}
	group.Wait()
	slices.SortStableFunc(out, func(a, b outcome) int { return rank(lanes, a.phase) - rank(lanes, b.phase) })
	return out
}

// rank is the place of a phase in the lanes.
func rank(lanes [][]phase, p phase) int {
	return slices.IndexFunc(slices.Concat(lanes...), func(other phase) bool { return other.name == p.name })
}

// runPhase runs a phase and waits for it.
func (s *suite) runPhase(ctx context.Context, p phase) outcome {
	o := outcome{phase: p}
	for _, ext := range []string{jsonExt, usageExt} {
		if err := os.Remove(s.file(p, ext)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.err = err
			return o
		}
	}
	if ctx.Err() != nil {
		return o
	}
	began := time.Now()
	cmd, err := s.command(ctx, p)
	if err == nil {
		o.ran = true
		out := s.out.prefixed(p.name)
		cmd.Stdout, cmd.Stderr = out, out
		err = s.wait(ctx, cmd)
		out.flush()
	}
	if state := cmdState(cmd); state != nil {
		o.cpu = state.UserTime() + state.SystemTime()
	}
	o.wall, o.err = time.Since(began), err
	return o
}

func cmdState(cmd *exec.Cmd) *os.ProcessState {
	if cmd == nil {
		return nil
	}
	return cmd.ProcessState
}

// Extensions of a phase's files of results: the events of its tests, and what its test binaries have used.
const (
	jsonExt  = ".json"
	usageExt = ".usage"
)

// command is the command that runs a phase. It has a process group of its own, which Ctrl-C does not reach.
func (s *suite) command(ctx context.Context, p phase) (*exec.Cmd, error) {
	paths, bed, err := s.picked(ctx, p)
	if err != nil {
		return nil, err
	}
	args := []string{
		"-count=1", "-vet=off", // lint vets
		"-trimpath", // what one checkout has compiled, the next one need not compile
		"-timeout=" + p.timeout.String(), "-exec='" + s.self + "' exec",
	}
	args = append(args, p.flags...)
	args = append(args, paths...)
	env := append([]string{"GOWORK=off", usageVariable + "=" + s.file(p, usageExt)}, p.env...)
	if s.cover != nil && p.dir == "" {
		args, env = s.cover.add(args, env, bed)
	}
	sum := []string{"--hide-summary=output", "--format=" + p.format, "--jsonfile=" + s.file(p, jsonExt), "--"}
	cmd := exec.Command(s.gotestsum, append(sum, args...)...)
	cmd.Dir = filepath.Join(s.root, p.dir)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = s.grace // for what a process that was killed leaves behind, which may hold the output
	return cmd, nil
}

// wait starts the command and waits for it. When ctx ends it interrupts the process group, and kills it after the grace
// period. Go and gotestsum end in order after an interrupt, and print what they know; they do not after SIGTERM.
func (s *suite) wait(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // it may have ended
		select {
		case <-time.After(s.grace):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		case <-ended:
		}
	}()
	return cmd.Wait()
}

// findGotestsum returns the path of gotestsum, which go.mod pins.
func findGotestsum(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "gotestsum")
	cmd.Stderr = os.Stderr
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build gotestsum: %w", err)
	}
	return strings.TrimSpace(string(path)), nil
}
