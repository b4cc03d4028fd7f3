// Package durable replaces files atomically: neither a killed process nor a power failure leaves a partly written file.
// The agent uses it for its journal, its notes on restores, the markers for the shim and the cluster's ledger. Agent
// and shim use it for what they note of pods.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// Replace makes b the content of the file at path, mode 0600. When it returns nil, a power failure does not undo the
// change. If it is interrupted, the file has either its old content or the new one. Concurrent calls do not disturb
// each other; the last one wins.
func Replace(path string, b []byte) error {
	dir := filepath.Dir(path)
	if err := renameio.WriteFile(path, b, 0o600, renameio.WithTempDir(dir),
		renameio.WithStaticPermissions(0o600)); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

// Remove removes a file durably. It is no error if the file does not exist.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// Clean removes the temporary files that interrupted replacements have left in a directory. No replacement may be under
// way there.
func Clean(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Type().IsRegular() && isTemp(e.Name()) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// isTemp reports whether a file is a temporary file. The names of renameio's are a dot, the final name, and a random
// number. Earlier agents added ".tmp" to the final name.
func isTemp(name string) bool {
	if strings.HasSuffix(name, ".tmp") {
		return true
	}
	return strings.HasPrefix(name, ".") && len(name) > 1 && name[len(name)-1] >= '0' && name[len(name)-1] <= '9'
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
