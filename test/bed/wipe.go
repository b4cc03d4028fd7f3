package bed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
)

// containerdDirs are what containerd and its shims keep of pods.
var containerdDirs = []string{"/run/containerd", disks["containerd"]}

// wipe ends the shims and sandboxes that are left of pods which could not be removed, and removes all that the stopped
// containerd knows. So the next bed of this program is like the first one.
func wipe() error {
	thaw(here.Name)
	if err := endLeft(); err != nil {
		return err
	}
	for _, dir := range containerdDirs {
		if err := empty(dir); err != nil {
			return err
		}
	}
	return nil
}

// endLeft kills the shims and sandboxes of pods, and waits until they are gone.
func endLeft() error {
	for deadline := time.Now().Add(cgroupGrace); ; time.Sleep(poll) {
		left, err := processesOf(isOfPod)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("bed: processes %v do not end", left)
		}
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL) // fails only if it is gone already
		}
	}
}

// isOfPod reports whether a command line is that of a shim, or of what runsc runs for a pod: both name the namespace
// of containerd that pods are in.
func isOfPod(cmdline []string) bool {
	program := filepath.Base(cmdline[0])
	return slices.ContainsFunc(cmdline, func(s string) bool { return filepath.Base(s) == "k8s.io" }) &&
		(strings.HasPrefix(program, "containerd-shim-") || strings.HasPrefix(program, "runsc"))
}

// empty removes what is in a directory, and mounted there.
func empty(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("bed: %w", err)
	}
	for _, m := range slices.Backward(mounts) {
		if m.Mountpoint == dir {
			continue
		}
		if err := syscall.Unmount(m.Mountpoint, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("bed: unmount %s: %w", m.Mountpoint, err)
		}
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err != nil {
		return fmt.Errorf("bed: empty %s: %w", dir, err)
	}
	return nil
}
