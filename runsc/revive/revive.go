// Package revive brings the containers of a pod that sleeps back by runsc. It creates them while their sandbox is
// created, and restores them once the sandbox waits for them.
package revive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	runc "github.com/containerd/go-runc"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// Runsc creates what it is to restore and does not find (gVisor, runsc/cmd/restore.go). So one run of it does both, and
// what it takes to get going is paid once.
//
// A container must be restored only once its sandbox waits for it, and can be created before. A Revival is a run of
// runsc that waits in between. Its methods may be called once each.
type Revival struct {
	cancel context.CancelFunc
	ended  <-chan error  // gets one value
	limit  time.Duration // see Begin
	gate   gate
}

// gate is where a run of runsc waits.
type gate interface {
	// open lets runsc go on, and returns when the container runs.
	open(ctx context.Context, ended <-chan error) error
	close()
}

// pidFile is the name of the file in a container's bundle that has the id of its process.
const pidFile = "init.pid"

// maxPid bounds the text of a process id, in bytes.
const maxPid = 32

// Begin begins to create a container, which is to be restored in its sandbox. The sandbox must be there, or runsc hold
// the lock under which it creates it. Call GoOn or Drop. Runsc is killed limit after GoOn.
//
// It waits at a pipe in the place of the file for the process id, which is the last that runsc writes when it creates a
// container (runsc/container/container.go, New).
func Begin(r *runsccmd.Runsc, id, bundle string, streams runc.IO, limit time.Duration) (*Revival, error) {
	pipe := filepath.Join(bundle, "revival.pid")
	if err := os.Remove(pipe); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		return nil, fmt.Errorf("%s: %w", pipe, err)
	}
	return begin(pidGate{pipe, filepath.Join(bundle, pidFile)}, limit, nil, func(ctx context.Context) *exec.Cmd {
		cmd := restoreCommand(ctx, r, id, bundle, pipe, bundle) // the sandbox has the image already
		streams.Set(cmd)
		return cmd
	})
}

// Prepare is Begin for runsc of the repaired build, in a sandbox that was restored without a network. Runsc does all
// that it can for the container, and waits at a pipe then. With setNetwork it sets the network once it goes on: one
// container of the sandbox has to.
func Prepare(r *runsccmd.Runsc, id, bundle string, streams runc.IO, limit time.Duration, setNetwork bool,
) (*Revival, error) {
	wait, goOn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	done, tell, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, wait.Close(), goOn.Close())
	}
	theirs := []*os.File{wait, tell}
	return begin(byteGate{goOn, done}, limit, theirs, func(ctx context.Context) *exec.Cmd {
		args := []string{"--go-fd=3", "--done-fd=4"} // where theirs come to be
		if setNetwork {
			args = append(args, "--set-network")
		}
		cmd := restoreCommand(ctx, r, id, bundle, filepath.Join(bundle, pidFile), bundle, args...)
		streams.Set(cmd)
		cmd.ExtraFiles = theirs
		return cmd
	})
}

// begin starts a command, which waits at a gate. It closes files once the command has them.
func begin(g gate, limit time.Duration, files []*os.File, command func(context.Context) *exec.Cmd) (*Revival, error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	ctx, cancel := context.WithCancel(context.Background()) // until it ends, or is canceled: requests come and go
	cmd := command(ctx)
	ended := make(chan error, 1)
	exit, err := runsccmd.Monitor.Start(cmd)
	if err != nil {
		cancel()
		g.close()
		return nil, err
	}
	go func() {
		defer cancel()
		ended <- success(runsccmd.Monitor.Wait(cmd, exit))
	}()
	return &Revival{cancel: cancel, ended: ended, limit: limit, gate: g}, nil
}

// Cancel kills runsc, and does not wait for its end.
func (r *Revival) Cancel() { r.cancel() }

// Drop kills runsc, and waits for its end.
func (r *Revival) Drop(ctx context.Context) error {
	defer r.gate.close()
	r.cancel()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of runsc: %w", context.Cause(ctx))
	}
}

// GoOn lets runsc restore the container once it has created it, and returns when the container runs. After an error
// runsc is killed.
func (r *Revival) GoOn(ctx context.Context) error {
	defer r.gate.close()
	time.AfterFunc(r.limit, r.cancel) // runsc may go on when the container runs
	err := r.gate.open(ctx, r.ended)
	if err != nil {
		r.cancel()
	}
	return err
}

// pidGate is the gate of Begin.
type pidGate struct {
	pipe string // its path
	pid  string // path of the file that gets the process id
}

func (pidGate) close() {}

func (g pidGate) open(ctx context.Context, ended <-chan error) error {
	f, err := os.OpenFile(g.pipe, os.O_RDWR|unix.O_NONBLOCK, 0) // both ends: runsc never waits for it from now on
	if err != nil {
		return err
	}
	defer f.Close()
	select {
	case err := <-ended:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	pid := make([]byte, maxPid)
	if err := f.SetReadDeadline(time.Now().Add(time.Second)); err != nil { // what runsc has written is there
		return err
	}
	n, err := f.Read(pid)
	if err != nil {
		return fmt.Errorf("process id in %s: %w", g.pipe, err)
	}
	return errors.Join(os.WriteFile(g.pid, pid[:n], 0o644), os.Remove(g.pipe))
}

// maxWhy bounds what runsc says of its failure, in bytes.
const maxWhy = 4 << 10

// byteGate is the gate of Prepare: runsc goes on when it gets a byte, and writes a zero byte when the container runs,
// or else why it does not. It may take a while to exit then.
type byteGate struct{ goOn, done *os.File }

func (g byteGate) close() {
	g.goOn.Close()
	g.done.Close()
}

func (g byteGate) open(ctx context.Context, ended <-chan error) error {
	defer context.AfterFunc(ctx, func() { g.done.Close() })()
	_, _ = g.goOn.Write([]byte{0}) // if nobody reads it, runsc has ended
	why := make([]byte, maxWhy)
	n, _ := g.done.Read(why)
	if n == 1 && why[0] == 0 {
		return nil
	}
	select { // it has ended, or is about to
	case err := <-ended:
		if n > 0 {
			return fmt.Errorf("runsc: %s", why[:n])
		}
		if err == nil {
			err = errors.New("runsc has not restored it")
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Sandbox creates the sandbox container and restores it. It returns once the sandbox waits for its other containers, or
// runs if there are none; and when these are being restored by then, once they are. With deferNetwork, which needs
// runsc of the repaired build, the sandbox has no network until a container of Prepare sets it.
func Sandbox(ctx context.Context, r *runsccmd.Runsc, id, bundle, image string, deferNetwork bool) error {
	null, err := runc.NewNullIO()
	if err != nil {
		return err
	}
	defer null.Close()
	var args []string
	if deferNetwork {
		args = append(args, "--defer-network")
	}
	cmd := restoreCommand(ctx, r, id, bundle, filepath.Join(bundle, pidFile), image, args...)
	null.Set(cmd)
	exit, err := runsccmd.Monitor.Start(cmd)
	if err != nil {
		return err
	}
	return success(runsccmd.Monitor.Wait(cmd, exit))
}

// success returns an error unless a command has ended with status 0.
func success(status int, err error) error {
	if err == nil && status != 0 {
		err = fmt.Errorf("runsc ended with status %d", status)
	}
	return err
}

// restoreCommand returns a command that runs runsc as r does, to create a container and restore it.
func restoreCommand(ctx context.Context, r *runsccmd.Runsc, id, bundle, pidFile, image string, more ...string,
) *exec.Cmd {
	args := []string{"--root=" + r.Root, "--log=" + r.Log, "--log-format=" + string(r.LogFormat)}
	if r.PanicLog != "" {
		args = append(args, "--panic-log="+r.PanicLog)
	}
	for name, value := range r.Config {
		args = append(args, "--"+name+"="+value)
	}
	args = append(args, "restore", "--bundle="+bundle, "--pid-file="+pidFile, "--image-path="+image, "--detach",
		"--background")
	args = append(append(args, more...), id)
	command := r.Command
	if command == "" {
		command = runsccmd.DefaultCommand
	}
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: r.PdeathSignal}
	return cmd
}
