package agent

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lock makes sure that one agent at a time works on a state directory. The lock ends with the
// process.
func lock(stateDir string) error {
	path := filepath.Join(stateDir, "lock")
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("another agent works on %s: stop it first, or give this one another --state-dir", stateDir)
		}
		return fmt.Errorf("lock %s: %w", path, err)
	}
	return nil
}
