package runsc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// KillOrphans kills the processes of runsc that serve a container, whether runsc knows of them or not: if a runsc is
// killed while it creates a sandbox, it may have started that and its gofers, and not have noted it yet. No runsc may
// create the container meanwhile.
func KillOrphans(container string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("processes of container %s: %w", container, err)
	}
	var errs []error
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && serves(pid, container) {
			errs = append(errs, signal(pid, unix.SIGKILL, func() bool { return serves(pid, container) }))
		}
	}
	return errors.Join(errs...)
}

// IsSandbox reports whether the command line of process pid names the sandbox.
func IsSandbox(pid int, sandbox string) bool { return slices.Contains(commandLine(pid), sandbox) }

// SignalSandbox signals process pid if its command line names the sandbox.
func SignalSandbox(pid int, sandbox string, sig unix.Signal) error {
	return signal(pid, sig, func() bool { return IsSandbox(pid, sandbox) })
}

// signal signals a process if it is still the one that is meant. It holds it by a descriptor meanwhile, so that it
// cannot hit another process with the same number.
func signal(pid int, sig unix.Signal, meant func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !meant() {
		return nil // exited, or another process by now
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

// serves reports whether a process is a sandbox or a gofer of the container. Its command line names that last (in
// gVisor, createSandboxProcess of runsc/sandbox and createGoferProcess of runsc/container).
func serves(pid int, container string) bool {
	args := commandLine(pid)
	return len(args) > 0 && (args[0] == "runsc-sandbox" || args[0] == "runsc-gofer") && args[len(args)-1] == container
}

// commandLine returns the arguments of a process, the first of which is its name. It is empty if there is no process.
func commandLine(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\x00 "), "\x00")
}
