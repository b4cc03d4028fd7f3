package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"diapause.dev/storage"
	"diapause.dev/storage/cache"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/gcs"
	"diapause.dev/storage/keyring"
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

// storeOptions are those of every store of the agent.
func (a *Agent) storeOptions() storage.Options {
	o := storage.Options{Logger: a.log}
	if a.cfg.Keys != "" {
		o.Keyring = keyring.Dir(a.cfg.Keys)
	}
	return o
}

// openCache opens what stands between restores and a store that is not on this node. Without it
// restores are slower, and nothing else.
func (a *Agent) openCache() {
	if strings.HasPrefix(a.cfg.Store, "dir:") || a.cfg.CacheSize <= 0 {
		return
	}
	c, err := cache.Open(filepath.Join(a.cfg.StateDir, "cache"), cache.Options{MaxBytes: a.cfg.CacheSize / 2, Logger: a.log})
	if err != nil {
		a.log.Warn("no cache", "error", err)
		return
	}
	a.cache, a.store.options.Cache = c, c
}

// cached is how many bytes the cache holds.
func (a *Agent) cached() int64 {
	if a.cache == nil {
		return 0
	}
	return a.cache.Bytes()
}

func (a *Agent) closeCache() error {
	if a.cache == nil {
		return nil
	}
	return a.cache.Close()
}

// remote is the store, opened when it is first needed and can be reached: an agent starts, and
// takes checkpoints into its spool, while the store is away.
type remote struct {
	location string
	log      *slog.Logger
	options  storage.Options

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
	s, err := storage.Open(ctx, b, r.options)
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
