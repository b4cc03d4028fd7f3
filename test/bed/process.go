package bed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// logDir is on the scratch disk; containerd and the agents log there, and pods.
const logDir = "/var/log"

// Process is a running program of the bed, whose output goes to a file. A goroutine of its
// own waits for it; Kill and Stop wait for that.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// startProcess starts a program of the bed in the space. Its log is appended to.
func (s space) startProcess(name, program string, args ...string) (*Process, error) {
	p := &Process{name: name, log: s.log(name), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("bed: %w", err)
	}
	defer log.Close()
	p.cmd = exec.Command(program, args...) // in the PATH our own come first
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := s.start(p.cmd); err != nil {
		return nil, fmt.Errorf("bed: start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait() // how it ended is in ProcessState
	}()
	return p, nil
}

// ready waits until up returns nil. It fails early if the process ends.
func (p *Process) ready(ctx context.Context, up func(context.Context) error) error {
	for {
		err := up(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("bed: %s ended (%s) before it was ready\n%s", p.name, p.cmd.ProcessState, tail(p.Log()))
		case <-ctx.Done():
			return fmt.Errorf("bed: wait for %s: %w: %w\n%s", p.name, ctx.Err(), err, tail(p.Log()))
		case <-time.After(poll):
		}
	}
}

// PID is the process's id in the bed, also if it runs in a node.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log returns all that the process has written so far.
func (p *Process) Log() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Kill ends the process by SIGKILL and returns when it is gone. It does nothing
// to one that was never started.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	p.cmd.Process.Kill() // fails only if it is gone already
	<-p.done
}

const (
	// stopTime is how long a process may take to end when it is asked to.
	stopTime = time.Minute
	// lastWords is how long it may take to write where it stands.
	lastWords = 2 * time.Second
)

// Stop asks the process to end by SIGTERM and returns when it is gone. If it
// takes longer than a minute or ctx, it is ended by SIGQUIT, upon which a Go
// program writes where it stands, and that is an error, as is an exit status
// other than 0.
func (p *Process) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	p.cmd.Process.Signal(syscall.SIGTERM) // fails only if it is gone already
	select {
	case <-p.done:
	case <-ctx.Done():
		p.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-p.done:
		case <-time.After(lastWords):
			p.Kill()
		}
		return fmt.Errorf("bed: stop %s: %w", p.name, ctx.Err())
	}
	if s := p.cmd.ProcessState; !s.Success() {
		return fmt.Errorf("bed: stop %s: %s\n%s", p.name, s, tail(p.Log()))
	}
	return nil
}

// tail returns the last lines of a log, for an error.
func tail(log string) string {
	const most = 30
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
