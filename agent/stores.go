package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

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

// local reports whether the store is on this node.
func (c *Config) local() bool { return strings.HasPrefix(c.Store, "dir:") }

// codec returns what chunks are compressed with. Replication copies packs as the spool has them, so
// the spool's own speed decides only where the store is no slower.
func (c *Config) codec() (storage.Codec, error) {
	switch {
	case c.Codec != "":
		return storage.ParseCodec(c.Codec)
	case c.local():
		return storage.CodecAuto, nil
	}
	return storage.CodecZstd, nil
}

// storeOptions are those of every store of the agent.
func (a *Agent) storeOptions() storage.Options {
	o := storage.Options{Logger: a.log, Codec: a.codec}
	if a.cfg.Keys != "" {
		o.Keyring = keyring.Dir(a.cfg.Keys)
	}
	return o
}

// openCache opens what stands between restores and a store that is not on this node. Without it
// restores are slower, and nothing else.
func (a *Agent) openCache() {
	if a.cfg.local() || a.cfg.CacheSize <= 0 {
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
