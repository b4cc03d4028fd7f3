package bed

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Shims returns the processes of Diapause's shim that serve a container, or a sandbox: one, unless
// something is amiss.
func Shims(container string) (pids []int, err error) {
	all, err := processesOf(func(cmdline []string) bool {
		return filepath.Base(cmdline[0]) == "containerd-shim-diapause-v1" && slices.Contains(cmdline, container)
	})
	for _, pid := range all {
		if !slices.Contains(all, parentOf(pid)) { // otherwise it is about to run another program
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// parentOf returns the parent of a process, or 0 if the process is gone.
func parentOf(pid int) (parent int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // proc_pid_stat(5)
	var state string
	_, _ = fmt.Sscan(rest, &state, &parent)
	return parent
}

// processesOf returns the processes whose command line is as wanted. Those that end meanwhile may be missing.
func processesOf(wanted func(cmdline []string) bool) (pids []int, err error) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil || !wanted(strings.Split(string(data), "\x00")) {
			continue // or gone meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// slowTime is longer than containerd waits for what a shim tells (io.containerd.timeout.task.state).
const slowTime = 3 * time.Second

// SlowShim stops the shim of a container, or of a sandbox, and lets it go on when containerd has given up
// waiting for what it was asked meanwhile.
func SlowShim(container string) error {
	pids, err := Shims(container)
	if err != nil {
		return err
	}
	if len(pids) != 1 {
		return fmt.Errorf("container %s is served by %d shims", container, len(pids))
	}
	if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop shim %d: %w", pids[0], err)
	}
	time.AfterFunc(slowTime, func() { _ = syscall.Kill(pids[0], syscall.SIGCONT) })
	return nil
}

// RunscRoot is where the shim has runsc keep the state of the pods' containers.
const RunscRoot = "/run/containerd/runsc/k8s.io"

// Paused reports whether a sandbox is paused, by what runsc keeps of it. If there is no such sandbox, the error is of
// kind os.ErrNotExist. A runsc that is just writing that down has its time.
func Paused(sandbox string) (paused bool, err error) {
	for began := time.Now(); ; time.Sleep(poll) {
		paused, err = readPaused(sandbox)
		if half := new(json.SyntaxError); !errors.As(err, &half) || time.Since(began) > writeTime {
			return paused, err
		}
	}
}

// writeTime bounds how long runsc may take to write the state of a sandbox.
const writeTime = 10 * time.Second

func readPaused(sandbox string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(RunscRoot, fmt.Sprintf("%s_sandbox:%s.state", sandbox, sandbox)))
	if err != nil {
		return false, err
	}
	var state struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return false, fmt.Errorf("state of sandbox %s: %w", sandbox, err)
	}
	return state.Status == "paused", nil
}
