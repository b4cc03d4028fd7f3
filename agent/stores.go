package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/gcs"
)

// openBackend opens what a --store flag names.
func openBackend(ctx context.Context, location string) (storage.Backend, error) {
	scheme, rest, ok := strings.Cut(location, ":")
	switch {
	case ok && scheme == "dir" && filepath.IsAbs(rest):
		return dir.Open(rest)
	case ok && scheme == "gs" && strings.HasPrefix(rest, "//"):
		bucket, prefix, _ := strings.Cut(rest[2:], "/")
		return gcs.Open(ctx, bucket, prefix)
	}
	return nil, fmt.Errorf("%w: store %q: want dir:/absolute/path or gs://bucket/prefix", ErrInvalid, location)
}

// ValidateStore returns an error if location is not the name of a store.
func ValidateStore(location string) error {
	scheme, rest, ok := strings.Cut(location, ":")
	if ok && scheme == "dir" && filepath.IsAbs(rest) || ok && scheme == "gs" && len(rest) > 2 && rest[:2] == "//" && rest[2] != '/' {
		return nil
	}
	return fmt.Errorf("%w: store %q: want dir:/absolute/path or gs://bucket/prefix", ErrInvalid, location)
}

// remote is the store, opened when it is first needed and can be reached: an agent starts, and
// takes checkpoints into its spool, while the store is away.
type remote struct {
	location string
	log      *slog.Logger

	mu    sync.Mutex
	store *storage.Store
}

// get returns the store, or an error of kind storage.ErrUnavailable.
func (r *remote) get(ctx context.Context) (*storage.Store, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store != nil {
		return r.store, nil
	}
	b, err := openBackend(ctx, r.location)
	if err != nil {
		return nil, fmt.Errorf("%w: open store %s: %w", storage.ErrUnavailable, r.location, err)
	}
	s, err := storage.Open(ctx, b, storage.Options{Logger: r.log})
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	r.store = s
	return s, nil
}

func (r *remote) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store == nil {
		return nil
	}
	return r.store.Backend().Close()
}
