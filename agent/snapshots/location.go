package snapshots

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/place"
	"diapause.dev/storage"
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

// MakeStore creates a store at a location, in the syntax of --store, unless there is one. It returns the store's
// identity and whether it was created. It uses this process's own credentials.
func MakeStore(ctx context.Context, location string, acceptNetwork bool) (identity string, made bool, err error) {
	b, err := place.Access{MayMake: true, AcceptNetwork: acceptNetwork}.Open(ctx, location)
	if err != nil {
		return "", false, err
	}
	defer b.Close()
	_, err = b.ReadAll(ctx, storage.Marker, 0) // limit 0: an existing marker is too large for it
	made = errors.Is(err, storage.ErrNotFound)
	s, err := storage.Open(ctx, b, storage.Options{})
	if err == nil {
		err = checkCreateOnly(ctx, b)
	}
	if err != nil {
		return "", false, err
	}
	return s.Identity(), made, nil
}

// checkCreateOnly returns an error if the service behind a backend lets a second writer overwrite the first. Only some
// backends have to be asked. There must be a store in b.
func checkCreateOnly(ctx context.Context, b storage.Backend) error {
	asked, ok := b.(interface {
		CheckCreateOnly(ctx context.Context, name string) error
	})
	if !ok {
		return nil
	}
	return asked.CheckCreateOnly(ctx, storage.Marker)
}

// CheckStore returns an error if there is no store at the location in the options. It makes none. Of the
// options only those of stores count.
func CheckStore(ctx context.Context, o Options) error {
	b, err := place.Access{AcceptNetwork: o.AcceptNetworkDirectory, Credentials: o.Credentials}.Open(ctx, o.Store)
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := b.ReadAll(ctx, storage.Marker, maxMarker); err != nil {
		return fmt.Errorf("no store at %s: %w", o.Store, err)
	}
	return nil
}

// maxMarker bounds what CheckStore reads.
const maxMarker = 64 << 10

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
