package sidecar

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// hold locks the options file, which is open as fd, until this process ends. See Held. It calls flock itself:
// package flock opens files by their path, and a sidecar has no path to this one.
func hold(fd int) error {
	own, err := dup(fd)
	if err != nil {
		return err
	}
	for {
		if err := unix.Flock(own, unix.LOCK_SH); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Held reports whether the sidecar of a restore is running, even if it is not connected to an agent. Dir is the
// request's directory.
func Held(dir string) (bool, error) {
	l := flock.New(filepath.Join(dir, OptionsFile), flock.SetFlag(os.O_RDONLY))
	free, err := l.TryLock()
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a sidecar: %w", err)
	}
	return !free, l.Close()
}

// dup duplicates a file descriptor. The duplicate is closed on exec.
func dup(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("duplicate file descriptor: %w", err)
	}
	return n, nil
}
