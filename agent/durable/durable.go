// Package durable replaces files so that neither a killed process nor a power cut leaves part of one.
// The agent's journal, its notes on restores, the markers for the shim and the cluster's ledger are
// written with it.
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

// Replace makes b the content of the file at path, mode 0600. When it returns nil, a power cut does not
// lose that. Whenever it is cut short, the file has its old content or the new one. Concurrent
// callers do not disturb each other: the last one wins.
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

// Remove removes a file durably. One that does not exist is no error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// Clean removes what replacements that were cut short have left in a directory. Nobody may be replacing
// a file there.
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

// isTemp reports whether a file is one of renameio's on the way to its name: a dot, the name, and a
// random number. Earlier agents wrote the name and ".tmp".
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
