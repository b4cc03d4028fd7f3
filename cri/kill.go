package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// pollExit is how often Kill checks whether containerd knows of the exit.
const pollExit = 20 * time.Millisecond

// Killer kills sandboxes, and waits until containerd knows that a pod has ended.
type Killer struct {
	tasks *Tasks
	pods  *Finder
}

// Kill ends a pod's sandbox with SIGKILL. A paused sandbox does not run on before it ends. Kill waits until
// containerd reports that all of the pod's containers have exited and that its sandbox is not ready. It does not
// remove the pod. If the sandbox is gone already, that is no error.
func (k *Killer) Kill(ctx context.Context, pod *Pod) error {
	pid, err := sandboxPID(ctx, pod.ID, k.tasks.process)
	if err != nil {
		return fmt.Errorf("kill pod %s: %w", pod, err)
	}
	if pid > 0 {
		if err := killSandbox(pid, pod.ID); err != nil {
			return fmt.Errorf("kill pod %s: %w", pod, err)
		}
	}
	if err := k.waitEnded(ctx, pod.ID); err != nil {
		return fmt.Errorf("kill pod %s: %w", pod, err)
	}
	return nil
}

// killSandbox sends SIGKILL to process pid if it is the sandbox with this id. It holds the process by a descriptor
// while it checks this, so that it cannot hit another process with the same number.
func killSandbox(pid int, id string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	is, err := isSandbox(pid, id)
	if err != nil || !is {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

// isSandbox reports whether process pid was started for the sandbox with this id. For a process that has exited it
// returns false. If the process belongs to something else it returns an error, because containerd has just named this
// process.
func isSandbox(pid int, id string) (bool, error) {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && len(cmdline) == 0 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("command line of process %d: %w", pid, err)
	}
	args := bytes.Split(bytes.TrimRight(cmdline, "\x00"), []byte{0})
	if !slices.ContainsFunc(args, func(a []byte) bool { return string(a) == id }) {
		return false, fmt.Errorf("process %d (%.40q) is not the sandbox %s", pid, args[0], id)
	}
	return true, nil
}

// Alive reports whether SandboxPID still runs as the pod's sandbox.
func (p *Pod) Alive() bool {
	is, err := isSandbox(p.SandboxPID, p.ID)
	return is && err == nil
}

// waitEnded polls until the pod has ended. The exit of each container reaches containerd by itself.
func (k *Killer) waitEnded(ctx context.Context, id string) error {
	tick := time.NewTicker(pollExit)
	defer tick.Stop()
	for {
		ended, err := k.ended(ctx, id)
		if err != nil || ended {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for its containers to exit: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func (k *Killer) ended(ctx context.Context, id string) (bool, error) {
	pods, err := k.pods.list(ctx, filterID(id))
	if err != nil {
		return false, err
	}
	for _, p := range pods {
		if p.Ready || slices.ContainsFunc(p.Containers, func(x Container) bool { return x.State == StateRunning }) {
			return false, nil
		}
	}
	return true, nil
}
