package snapshots

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/place"
)

// mayMake reports whether an agent may create a store at a location by itself: in a bucket, at place.Default, and
// within its own state directory. Any other directory may be a mount point where nothing is mounted.
func (o *Options) mayMake(location string) bool {
	path, isDir := strings.CutPrefix(location, "dir:")
	if isDir && o.StateDir == "" {
		return false
	}
	rel, err := filepath.Rel(o.StateDir, path)
	return !isDir || location == place.Default || err == nil && filepath.IsLocal(rel)
}

// checkCredentials returns an error if path is neither empty nor a directory.
func checkCredentials(path string) error {
	if path == "" {
		return nil
	}
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		return fmt.Errorf("%w: --bucket-credentials=%s is no directory", errkind.ErrInvalid, path)
	}
	return nil
}

// local reports whether a store is a directory, and so within reach of this node's file system.
func local(location string) bool { return strings.HasPrefix(location, "dir:") }
