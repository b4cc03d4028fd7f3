package fidelity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"diapause.dev/test/workload/answers"
)

// Options say where the checks may work.
type Options struct {
	Dir   string // on the root file system; made if it is not there
	Tmpfs string // on a tmpfs
}

// Suite is the checks at work.
type Suite struct {
	ctx     context.Context
	stop    context.CancelFunc
	options Options
	wg      sync.WaitGroup
	records []*record
	closers []io.Closer // unblock what waits; closed last to first
}

// Start starts all checks. They work until Close.
func Start(ctx context.Context, o Options) (*Suite, error) {
	ctx, stop := context.WithCancel(ctx)
	s := &Suite{ctx: ctx, stop: stop, options: o}
	for _, d := range []string{o.Dir, o.Tmpfs} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("make directory: %w", err), s.Close())
		}
	}
	for _, start := range []func() error{
		s.pipe, s.socketPair, s.unixStream, s.loopback, s.sharedFutex, s.threads, s.listener, s.heap,
		s.files, s.offset, s.journal, s.ticker, s.due, s.timerFD, s.alarm, s.spawn, s.environment,
	} {
		if err := start(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Report returns the state of every check.
func (s *Suite) Report() []answers.Check {
	var all []answers.Check
	for _, r := range s.records {
		all = append(all, r.report())
	}
	return all
}

// Close ends all checks and their processes and waits for them. The reports stay as they were.
func (s *Suite) Close() error {
	s.stop()
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		if err := s.closers[i].Close(); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.wg.Wait()
	return errors.Join(errs...)
}

// record begins a check.
func (s *Suite) record(name string) *record {
	r := &record{name: name}
	s.records = append(s.records, r)
	return r
}

// run runs one part of a check; what it returns is the check's failure, unless all is at an end.
func (s *Suite) run(r *record, f func() error) {
	s.wg.Go(func() {
		if err := f(); err != nil && s.ctx.Err() == nil {
			r.fail(err)
		}
	})
}

// every runs one step of a check again and again. It ends with the first failure.
func (s *Suite) every(r *record, d time.Duration, step func() error) {
	s.run(r, func() error {
		for sleep(s.ctx, d) {
			if err := step(); err != nil {
				return err
			}
			r.step()
		}
		return nil
	})
}

// closes has c closed at the end.
func (s *Suite) closes(c io.Closer) { s.closers = append(s.closers, c) }

// child starts this program again as a part of a check, with files as its descriptors from 3 on,
// which are closed here. That it ends before all is at an end is a failure.
func (s *Suite) child(r *record, files []*os.File, args ...string) error {
	cmd, err := command(s.ctx, args...)
	if err != nil {
		return err
	}
	cmd.ExtraFiles = files
	err = cmd.Start()
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("%s: start child: %w", r.name, err)
	}
	s.run(r, func() error { return fmt.Errorf("child ended: %v", cmd.Wait()) })
	return nil
}

// command runs this program as the part that args name.
func command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, append([]string{ChildMode}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// sleep reports whether d has passed, rather than ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
