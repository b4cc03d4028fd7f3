package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/storage"
	"diapause.dev/storage/cache"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/gcs"
	"diapause.dev/storage/keyring"
)

// DefaultStore is the location of the store of an agent that was told nothing else.
const DefaultStore = "dir:/var/lib/diapause/store"

// errNoStore is the kind of error of a directory that might be made a store, if it is not a place where one is to be
// mounted.
var errNoStore = errors.New("there is no store")

// mayMake reports whether an agent makes a store at a location by itself: in a bucket, which is there or not, and
// beside its own state. Any other directory may be a place where nothing is mounted.
func (c *Config) mayMake(location string) bool {
	path, isDir := strings.CutPrefix(location, "dir:")
	rel, err := filepath.Rel(c.StateDir, path)
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

// stores are the stores that an agent works with: its own, and those that a cluster names. Its
// methods may be called concurrently.
type stores struct {
	own  *remote
	make func(location string) *remote

	mu    sync.Mutex
	named map[string]*remote
}

func newStores(own string, open func(location string) *remote) *stores {
	return &stores{own: open(own), make: open, named: make(map[string]*remote)}
}

// at returns the store at a location; the empty one is the agent's own.
func (s *stores) at(location string) (*remote, error) {
	if location == "" || location == s.own.location {
		return s.own, nil
	}
	if err := ValidateStore(location); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.named[location]
	if r == nil {
		r = s.make(location)
		s.named[location] = r
	}
	return r, nil
}

// get returns the open store at a location, or an error of kind storage.ErrUnavailable.
func (s *stores) get(ctx context.Context, location string) (*storage.Store, error) {
	r, err := s.at(location)
	if err != nil {
		return nil, err
	}
	return r.get(ctx)
}

// all returns every store, the agent's own first.
func (s *stores) all() []*remote {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []*remote{s.own}
	for _, location := range slices.Sorted(maps.Keys(s.named)) {
		out = append(out, s.named[location])
	}
	return out
}

// open returns every store that can be had, and why others cannot.
func (s *stores) open(ctx context.Context) (open []*storage.Store, err error) {
	for _, r := range s.all() {
		st, openErr := r.get(ctx)
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		open = append(open, st)
	}
	return open, err
}

// close closes all stores; none must be asked for any more.
func (s *stores) close() (err error) {
	for _, r := range s.all() {
		err = errors.Join(err, r.close())
	}
	return err
}

// local reports whether a store is on this node.
func local(location string) bool { return strings.HasPrefix(location, "dir:") }

// codec returns what chunks for a store are compressed with. Replication copies packs as the spool
// has them, so the spool's own speed decides only where the store is no slower.
func (c *Config) codec(location string) (storage.Codec, error) {
	switch {
	case c.Codec != "":
		return storage.ParseCodec(c.Codec)
	case local(cmp.Or(location, c.Store)):
		return storage.CodecAuto, nil
	}
	return storage.CodecZstd, nil
}

// storeOptions are those of every store of the agent.
func (a *Agent) storeOptions() storage.Options {
	o := storage.Options{Logger: a.log}
	if a.cfg.Keys != "" {
		o.Keyring = keyring.Dir(a.cfg.Keys)
	}
	return o
}

// openStore prepares the store at a location. One that is not on this node has a cache before it.
func (a *Agent) openStore(location string) *remote {
	r := newRemote(location, a.wakeReplicator)
	r.options, r.mayMake, r.acceptNetwork = a.storeOptions(), a.cfg.mayMake(location), a.cfg.AcceptNetworkDirectory
	r.ids = &storeIDs{
		dir:        filepath.Join(a.cfg.StateDir, "stores"),
		configured: map[string]string{a.cfg.Store: a.cfg.StoreID},
	}
	if !local(location) {
		if c := a.cache.get(); c != nil { // not a nil pointer in an interface
			r.options.Cache = c
		}
	}
	return r
}

// lazyCache is what stands between restores and the stores that are not on this node, opened when
// the first of them is.
type lazyCache struct {
	dir      string
	maxBytes int64
	log      *slog.Logger

	mu     sync.Mutex
	cache  *cache.Cache
	failed bool
	tidied time.Time // when blocks of deleted objects were removed last
}

// get returns the cache, or nil if there is none: then restores are slower, and nothing else.
func (l *lazyCache) get() *cache.Cache {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cache != nil || l.failed || l.maxBytes <= 0 {
		return l.cache
	}
	c, err := cache.Open(l.dir, cache.Options{MaxBytes: l.maxBytes, Logger: l.log})
	if err != nil {
		l.log.Warn("no cache", "error", err)
		l.failed = true
		return nil
	}
	l.cache = c
	return c
}

// due returns the cache if it is open and was not compared with the stores of late, or else nil.
func (l *lazyCache) due() *cache.Cache {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.tidied) < tidyEvery {
		return nil
	}
	return l.cache
}

// tidy notes that the cache holds nothing now that was deleted.
func (l *lazyCache) tidy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tidied = time.Now()
}

// bytes is how many bytes the cache holds.
func (l *lazyCache) bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cache == nil {
		return 0
	}
	return l.cache.Bytes()
}

func (l *lazyCache) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cache == nil {
		return nil
	}
	return l.cache.Close()
}
