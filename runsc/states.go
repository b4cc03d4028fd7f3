package runsc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// RemoveTorn removes from runsc's root directory what it has written of a sandbox's containers, where that is no JSON:
// a runsc was killed as it wrote it (runsc/container/state_file.go, SaveLocked). As long as there is such a file, runsc
// does nothing for the sandbox. No process of the sandbox may run, and no runsc for it.
func RemoveTorn(root, sandbox string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("containers of sandbox %s: %w", sandbox, err)
	}
	var errs []error
	for _, e := range entries {
		container, ok := strings.CutSuffix(e.Name(), "_sandbox:"+sandbox+".state")
		if !ok {
			continue
		}
		path := filepath.Join(root, e.Name())
		text, err := os.ReadFile(path)
		if err == nil && !json.Valid(text) {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("container %s: %w", container, err))
		}
	}
	return errors.Join(errs...)
}
