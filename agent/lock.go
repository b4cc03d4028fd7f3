package agent

import (
	"fmt"
	"path/filepath"

	"github.com/gofrs/flock"
)

// lock makes sure that only one agent works on a state directory, until the caller closes the lock.
func lock(stateDir string) (*flock.Flock, error) {
	l := flock.New(filepath.Join(stateDir, "lock"))
	locked, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", l, err)
	}
	if !locked {
		return nil, fmt.Errorf("another agent works on %s: stop it first, or give this one another --state-dir", stateDir)
	}
	return l, nil
}
