package snapshots

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"diapause.dev/agent/errkind"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/gcs"
)

// DefaultStore is the location of an agent's store if no other is configured.
const DefaultStore = "dir:/var/lib/diapause/store"

// errNoStore is the kind of error for a directory without a store. It may be a mount point where nothing is mounted, so
// the agent makes no store there.
var errNoStore = errors.New("there is no store")

// mayMake reports whether an agent may create a store at a location by itself: in a bucket, at DefaultStore, and within
// its own state directory. Any other directory may be a mount point where nothing is mounted.
func (o *Options) mayMake(location string) bool {
	path, isDir := strings.CutPrefix(location, "dir:")
	if isDir && o.StateDir == "" {
		return false
	}
	rel, err := filepath.Rel(o.StateDir, path)
	return !isDir || location == DefaultStore || err == nil && filepath.IsLocal(rel)
}

// MakeStore creates a store at a location, in the syntax of --store, unless there is one. It returns the store's
// identity and whether it was created.
func MakeStore(ctx context.Context, location string, acceptNetwork bool) (identity string, made bool, err error) {
	b, err := openBackend(ctx, location, true, acceptNetwork)
	if err != nil {
		return "", false, err
	}
	defer b.Close()
	_, err = b.ReadAll(ctx, storage.Marker, 0) // limit 0: an existing marker is too large for it
	made = errors.Is(err, storage.ErrNotFound)
	s, err := storage.Open(ctx, b, storage.Options{})
	if err != nil {
		return "", false, err
	}
	return s.Identity(), made, nil
}

// openBackend opens the backend at a location in the syntax of --store. It creates a directory only if mayMake is set.
func openBackend(ctx context.Context, location string, mayMake, acceptNetwork bool) (storage.Backend, error) {
	scheme, rest, ok := strings.Cut(location, ":")
	switch {
	case ok && scheme == "dir" && filepath.IsAbs(rest):
		return openDir(rest, mayMake, acceptNetwork)
	case ok && scheme == "gs" && strings.HasPrefix(rest, "//"):
		bucket, prefix, _ := strings.Cut(rest[2:], "/")
		return gcs.Open(ctx, bucket, prefix)
	}
	return nil, fmt.Errorf("%w: store %q: want dir:/absolute/path or gs://bucket/prefix", errkind.ErrInvalid, location)
}

func openDir(path string, mayMake, acceptNetwork bool) (storage.Backend, error) {
	if !acceptNetwork {
		if err := dir.CheckShared(path); err != nil {
			return nil, fmt.Errorf("%w; or accept the risk, that snapshots are lost, with --accept-network-directory", err)
		}
	}
	if mayMake {
		return dir.Open(path)
	}
	b, err := dir.OpenExisting(path, storage.Marker)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w in %s", errNoStore, path)
	}
	return b, err
}

// ValidateStore returns an error if location is not a valid location of a store.
func ValidateStore(location string) error {
	scheme, rest, ok := strings.Cut(location, ":")
	if ok && scheme == "dir" && filepath.IsAbs(rest) || ok && scheme == "gs" && len(rest) > 2 && rest[:2] == "//" &&
		rest[2] != '/' {
		return nil
	}
	return fmt.Errorf("%w: store %q: want dir:/absolute/path or gs://bucket/prefix", errkind.ErrInvalid, location)
}

// local reports whether a store is a directory, and so within reach of this node's file system.
func local(location string) bool { return strings.HasPrefix(location, "dir:") }
