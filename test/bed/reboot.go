package bed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// bootID is the file by which the kernel tells one boot of a machine from another.
const bootID = "/proc/sys/kernel/random/boot_id"

// Reboot ends all that runs on the node, as if it had lost its power, takes away what does not survive that, and
// starts containerd again. Its pods are there no longer; containerd remembers them, as after a real reboot. The
// network of the node stays, and so does whatever was written to a disk. After it, agents can be started again.
func (b *Bed) Reboot(ctx context.Context) error {
	b.Containerd.Kill()
	for _, a := range b.agents {
		a.Kill()
	}
	err := endAll(ctx)
	if err == nil {
		err = errors.Join(forgetRun(), nextBoot())
	}
	if err == nil {
		err = b.Containerd.Start(ctx)
	}
	if err != nil {
		return fmt.Errorf("bed: reboot: %w", err)
	}
	return nil
}

// endAll ends every process of the bed except its first and this one.
func endAll(ctx context.Context) error {
	return Until(ctx, func() error {
		dirs, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return err
		}
		left := 0
		for _, dir := range dirs {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil || pid == 1 || pid == os.Getpid() || ended(dir) {
				continue
			}
			left++
			_ = syscall.Kill(pid, syscall.SIGKILL) // fails only if it is gone
		}
		if left > 0 {
			return fmt.Errorf("%d processes are left", left)
		}
		return nil
	})
}

// ended reports whether a process has ended, and is only not reaped yet.
func ended(dir string) bool {
	stat, err := os.ReadFile(dir + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(rest, "Z")
}

// forgetRun removes what is on the tmpfs that holds /run: all of containerd, runsc and Diapause, and the pods' network
// namespaces. What the bed itself keeps there stays.
func forgetRun() error {
	var errs []error
	for _, dir := range []string{"/run/containerd", "/run/netns", "/run/diapause"} {
		errs = append(errs, unmountBelow(dir), os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// unmountBelow unmounts everything below a directory, the innermost first.
func unmountBelow(dir string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var below []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			below = append(below, f[4])
		}
	}
	for _, target := range slices.Backward(below) {
		if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return nil
}

// nextBoot has the bed's processes see another boot.
func nextBoot() error {
	path := filepath.Join(tmpDir, "boot-"+rand.Text())
	if err := os.WriteFile(path, []byte(rand.Text()+"\n"), 0o444); err != nil {
		return err
	}
	if err := syscall.Mount(path, bootID, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("another boot: %w", err)
	}
	return nil
}
