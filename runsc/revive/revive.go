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
// runsc that waits in between: at a pipe in the place of the file for the process id, which is the last that runsc
// writes when it creates a container (runsc/container/container.go, New).
type Revival struct {
	pipe   string // its path
	pid    string // path of the file that gets the process id
	cancel context.CancelFunc
	ended  <-chan error // gets one value
}

// maxPid bounds the text of a process id, in bytes.
const maxPid = 32

// Begin begins to create a container, which is to be restored in its sandbox. The sandbox must be there, or runsc hold
// the lock under which it creates it. Call GoOn or Drop. Runsc is killed after limit.
func Begin(r *runsccmd.Runsc, id, bundle string, streams runc.IO, limit time.Duration) (*Revival, error) {
	pipe := filepath.Join(bundle, "revival.pid")
	if err := os.Remove(pipe); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		return nil, fmt.Errorf("%s: %w", pipe, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	image := bundle // runsc wants a path, and does not look there: the sandbox has the image already
	cmd := restoreCommand(ctx, r, id, bundle, pipe, image)
	streams.Set(cmd)
	ended := make(chan error, 1)
	exit, err := runsccmd.Monitor.Start(cmd)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer cancel()
		ended <- success(runsccmd.Monitor.Wait(cmd, exit))
	}()
	return &Revival{pipe: pipe, pid: filepath.Join(bundle, "init.pid"), cancel: cancel, ended: ended}, nil
}

// Cancel kills runsc, and does not wait for its end.
func (r *Revival) Cancel() { r.cancel() }

// Drop kills runsc, and waits for its end.
func (r *Revival) Drop(ctx context.Context) error {
	r.cancel()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of runsc: %w", context.Cause(ctx))
	}
}

// GoOn lets runsc restore the container once it has created it, and returns when the container runs.
func (r *Revival) GoOn(ctx context.Context) error {
	defer r.cancel()
	f, err := os.OpenFile(r.pipe, os.O_RDWR|unix.O_NONBLOCK, 0) // both ends: runsc never waits for it from now on
	if err != nil {
		return err
	}
	defer f.Close()
	select {
	case err := <-r.ended:
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
		return fmt.Errorf("process id in %s: %w", r.pipe, err)
	}
	return errors.Join(os.WriteFile(r.pid, pid[:n], 0o644), os.Remove(r.pipe))
}

// Sandbox creates the sandbox container and restores it. It returns once the sandbox waits for its other containers, or
// runs if there are none; and when these are being restored by then, once they are.
func Sandbox(ctx context.Context, r *runsccmd.Runsc, id, bundle, image string) error {
	null, err := runc.NewNullIO()
	if err != nil {
		return err
	}
	defer null.Close()
	cmd := restoreCommand(ctx, r, id, bundle, filepath.Join(bundle, "init.pid"), image)
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
func restoreCommand(ctx context.Context, r *runsccmd.Runsc, id, bundle, pidFile, image string) *exec.Cmd {
	args := []string{"--root=" + r.Root, "--log=" + r.Log, "--log-format=" + string(r.LogFormat)}
	if r.PanicLog != "" {
		args = append(args, "--panic-log="+r.PanicLog)
	}
	for name, value := range r.Config {
		args = append(args, "--"+name+"="+value)
	}
	args = append(args, "restore", "--bundle="+bundle, "--pid-file="+pidFile, "--image-path="+image, "--detach",
		"--background", id)
	command := r.Command
	if command == "" {
		command = runsccmd.DefaultCommand
	}
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: r.PdeathSignal}
	return cmd
}
