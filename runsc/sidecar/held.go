package sidecar

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// hold keeps the options file, which is open at fd, locked until this process ends: see Held.
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

// Held reports whether the sidecar of the restore in a request's directory is running, whether or not it
// is connected to an agent.
func Held(dir string) (bool, error) {
	f, err := os.Open(filepath.Join(dir, OptionsFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a sidecar: %w", err)
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a sidecar: %w", err)
	}
	return false, nil
}
