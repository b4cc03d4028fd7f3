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

// DefaultStore is the location of the store of an agent that was told nothing else.
const DefaultStore = "dir:/var/lib/diapause/store"

// errNoStore is the kind of error of a directory that might be made a store, if it is not a place where one is to be
// mounted.
var errNoStore = errors.New("there is no store")

// mayMake reports whether an agent makes a store at a location by itself: in a bucket, which is there or not, and
// beside its own state. Any other directory may be a place where nothing is mounted.
func (o *Options) mayMake(location string) bool {
	path, isDir := strings.CutPrefix(location, "dir:")
	rel, err := filepath.Rel(o.StateDir, path)
	return !isDir || location == DefaultStore || err == nil && filepath.IsLocal(rel)
}

// MakeStore makes a store at a location, which is what --store says, unless there is one. It returns the store's
// identity.
func MakeStore(ctx context.Context, location string, acceptNetwork bool) (identity string, made bool, err error) {
	b, err := openBackend(ctx, location, true, acceptNetwork)
	if err != nil {
		return "", false, err
	}
	defer b.Close()
	_, err = b.ReadAll(ctx, storage.Marker, 0) // what is there is too large for that
	made = errors.Is(err, storage.ErrNotFound)
	s, err := storage.Open(ctx, b, storage.Options{})
	if err != nil {
		return "", false, err
	}
	return s.Identity(), made, nil
}

// openBackend opens what a --store flag names. It makes a store's directory only if it may.
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

// ValidateStore returns an error if location is not the name of a store.
func ValidateStore(location string) error {
	scheme, rest, ok := strings.Cut(location, ":")
	if ok && scheme == "dir" && filepath.IsAbs(rest) || ok && scheme == "gs" && len(rest) > 2 && rest[:2] == "//" &&
		rest[2] != '/' {
		return nil
	}
	return fmt.Errorf("%w: store %q: want dir:/absolute/path or gs://bucket/prefix", errkind.ErrInvalid, location)
}

// local reports whether a store is on this node.
func local(location string) bool { return strings.HasPrefix(location, "dir:") }
