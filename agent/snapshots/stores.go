package snapshots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/place"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/durable"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/keyring"
)

// Names in a node's state directory.
const (
	storesDir = "stores"
	usesFile  = "uses.json"
)

// Stores are the places where snapshots are: the spool on this node, the agent's own store, and the
// stores that a cluster names. Its methods may be called concurrently.
type Stores struct {
	o     Options
	log   *slog.Logger
	keys  keys
	spool *storage.Store
	cache *blockCache // nil: none
	own   *Remote
	// moving keeps a snapshot to one replication, removal, eviction or repair at a time.
	moving *keylock.Locks

	mu    sync.Mutex
	named map[string]*Remote // by location
}

// Cluster is what Stores and Catalog need of the cluster that a node belongs to.
type Cluster interface {
	// Stores returns the locations of the stores that the cluster names.
	Stores(ctx context.Context) ([]string, error)
	// Referred returns the locations of the stores that the cluster names, and of those that its snapshots are in.
	Referred(ctx context.Context) ([]string, error)
	// Remove deletes the cluster's objects for a snapshot, and returns once all stored data of the snapshot is gone. known
	// is false if the cluster does not know the snapshot.
	Remove(ctx context.Context, key snapshot.Key) (known bool, err error)
}

// Open opens the spool and tries to open the agent's own store. While that store cannot be reached, checkpoints stay in
// the spool. After an error nothing is open.
func Open(ctx context.Context, o Options) (*Stores, error) {
	s := &Stores{o: o, log: o.Logger, moving: keylock.New(), named: make(map[string]*Remote)}
	if _, err := s.Codec(""); err != nil {
		return nil, fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	if err := checkCredentials(o.Credentials); err != nil {
		return nil, err
	}
	var err error
	if s.keys, err = o.readKeys(); err != nil {
		return nil, err
	}
	s.keys.log(s.log)
	if err := s.cleanStateDir(); err != nil {
		s.log.Warn("temporary files of an earlier agent are left", "error", err)
	}
	if s.spool, err = s.openSpool(ctx); err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	s.cache = &blockCache{dir: filepath.Join(o.StateDir, "cache"), maxBytes: o.CacheSize / 2, log: s.log}
	s.own = s.prepare(o.Store)
	if _, err := s.own.Get(ctx); err != nil {
		s.log.Warn("the store cannot be reached; checkpoints stay in the spool until it can", "error", err)
	}
	return s, nil
}

// cleanStateDir removes what interrupted replacements of files have left.
func (s *Stores) cleanStateDir() error {
	err := durable.Clean(filepath.Join(s.o.StateDir, storesDir))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	left, globErr := filepath.Glob(filepath.Join(s.o.StateDir, "."+usesFile+"*"))
	for _, f := range left {
		err = errors.Join(err, os.Remove(f))
	}
	return errors.Join(err, globErr)
}

func (s *Stores) openSpool(ctx context.Context) (*storage.Store, error) {
	b, err := dir.Open(s.SpoolDir())
	if err != nil {
		return nil, err
	}
	o := s.storeOptions()
	o.Spool = true
	spool, err := storage.Open(ctx, b, o)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return spool, nil
}

// Spool returns the store on this node that every snapshot is written to first.
func (s *Stores) Spool() *storage.Store { return s.spool }

// SpoolDir returns the directory of the spool.
func (s *Stores) SpoolDir() string { return filepath.Join(s.o.StateDir, "spool") }

// Encrypted reports whether everything that is written to a disk of this node must be encrypted.
func (s *Stores) Encrypted() bool { return s.o.Keys != "" }

// At returns the store at a location; the empty one is the agent's own.
func (s *Stores) At(location string) (*Remote, error) {
	if location == "" || location == s.own.location {
		return s.own, nil
	}
	if err := place.Validate(location); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.named[location]
	if r == nil {
		r = s.prepare(location)
		s.named[location] = r
	}
	return r, nil
}

// Get returns the open store at a location, or an error of kind storage.ErrUnavailable.
func (s *Stores) Get(ctx context.Context, location string) (*storage.Store, error) {
	r, err := s.At(location)
	if err != nil {
		return nil, err
	}
	return r.Get(ctx)
}

// Own returns the agent's own store.
func (s *Stores) Own() *Remote { return s.own }

// All returns every store, the agent's own first.
func (s *Stores) All() []*Remote {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []*Remote{s.own}
	for _, location := range slices.Sorted(maps.Keys(s.named)) {
		out = append(out, s.named[location])
	}
	return out
}

// Open returns every store that can be opened, and why the others cannot.
func (s *Stores) Open(ctx context.Context) (open []*storage.Store, err error) {
	for _, r := range s.All() {
		st, openErr := r.Get(ctx)
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		open = append(open, st)
	}
	return open, err
}

// Close closes the spool and all stores. No method may be called afterwards.
func (s *Stores) Close() (err error) {
	for _, r := range s.All() {
		err = errors.Join(err, r.close())
	}
	return errors.Join(err, s.cache.close(), s.spool.Backend().Close())
}

// Codec returns the compression of chunks for a store. Replication copies packs as they are in the spool. So a codec
// that is chosen for the spool's speed makes sense only if the store is as fast.
func (s *Stores) Codec(location string) (storage.Codec, error) {
	switch {
	case s.o.Codec != "":
		return storage.ParseCodec(s.o.Codec)
	case local(cmp.Or(location, s.o.Store)):
		return storage.CodecAuto, nil
	}
	return storage.CodecZstd, nil
}

// storeOptions returns the options that all stores of the agent share.
func (s *Stores) storeOptions() storage.Options {
	o := storage.Options{Logger: s.log, SigningKey: s.keys.signing, Trusted: s.keys.trusted}
	if s.o.Keys != "" {
		o.Keyring = keyring.Dir(s.o.Keys)
	}
	return o
}

// prepare returns the store at a location, not yet opened. A store on another machine gets a cache.
func (s *Stores) prepare(location string) *Remote {
	r := newRemote(location, s.o.Opened)
	r.options = s.storeOptions()
	r.access = place.Access{
		MayMake: s.o.mayMake(location), AcceptNetwork: s.o.AcceptNetworkDirectory, Credentials: s.o.Credentials,
	}
	r.measure = s.o.Measure
	r.ids = &storeIDs{configured: map[string]string{s.o.Store: s.o.StoreID}}
	if s.o.StateDir != "" {
		r.ids.dir = filepath.Join(s.o.StateDir, storesDir)
	}
	if !local(location) && s.cache != nil {
		if c := s.cache.get(); c != nil { // not a nil pointer in an interface
			r.options.Cache = c
		}
	}
	return r
}

// Everywhere returns every store that can be opened, including those that the cluster names, and why the others cannot.
func (s *Stores) Everywhere(ctx context.Context) ([]*storage.Store, error) {
	unknown := s.Learn(ctx)
	open, err := s.Open(ctx)
	return open, errors.Join(unknown, err)
}

// Learn adds the stores that the cluster names to those of All.
func (s *Stores) Learn(ctx context.Context) error {
	if s.o.Cluster == nil {
		return nil
	}
	locations, err := s.o.Cluster.Stores(ctx)
	errs := []error{err}
	for _, location := range locations {
		_, err := s.At(location)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
