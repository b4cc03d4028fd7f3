package snapshots

import (
	"context"
	"errors"
	"time"

	"diapause.dev/agent/keylock"
	"diapause.dev/agent/place"
	"diapause.dev/storage"
)

// Central are the stores of a cluster, as its controller sees them. It has no spool and no cache, makes no snapshots
// and restores none. Its methods may be called concurrently.
type Central struct {
	stored
	remover Remover
}

// OpenCentral returns the stores of a cluster. Of the options only those of stores count. A store is opened when it is
// needed. After an error nothing is open.
func OpenCentral(o Options) (*Central, error) {
	if err := errors.Join(place.Validate(o.Store), checkCredentials(o.Credentials)); err != nil {
		return nil, err
	}
	o.SigningKey, o.TrustedKeys, o.Opened = "", "", func() {}
	s := &Stores{o: o, log: o.Logger, moving: keylock.New(), named: make(map[string]*Remote)}
	s.own = s.prepare(o.Store)
	return &Central{stored: stored{s}, remover: Remover{stores: s}}, nil
}

// Shared reports whether the store at a location is one that all nodes see, and the controller too: a bucket, or a
// directory of a network file system that is mounted here.
func (*Central) Shared(location string) bool {
	there, own := disk(location)
	return !local(location) || there && !own
}

// Remove removes a snapshot FromStore, the only place that Central has.
func (c *Central) Remove(ctx context.Context, r Removal) error { return c.remover.Remove(ctx, r) }

// RotateKeys wraps the data keys of a namespace, or of all, in the store at a location with the namespace's current
// key.
func (c *Central) RotateKeys(ctx context.Context, namespace, location string) (storage.RewrapResult, error) {
	s, err := c.open(ctx, location)
	if err != nil {
		return storage.RewrapResult{}, err
	}
	return s.Rewrap(ctx, storage.RewrapOptions{Namespace: namespace})
}

// openTime bounds how long a store may take to be opened, or to say why it cannot be, for whom nobody keeps trying.
const openTime = time.Minute

// open is Stores.Get for who does not ask again.
func (c *Central) open(ctx context.Context, location string) (s *storage.Store, err error) {
	for end := time.Now().Add(openTime); ; {
		s, err = c.stores.Get(ctx, location)
		if !errors.Is(err, errOpening) || time.Now().After(end) {
			return s, err
		}
		select {
		case <-time.After(openWait / 10):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Close closes all stores. No method may be called afterwards.
func (c *Central) Close() (err error) {
	for _, r := range c.stores.All() {
		err = errors.Join(err, r.close())
	}
	return err
}

// Note returns the note with that name in the store at a location, or nil.
func (c *Central) Note(ctx context.Context, location, name string) ([]byte, error) {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return nil, err
	}
	return s.Note(ctx, name)
}

// SetNote replaces the note with that name in the store at a location.
func (c *Central) SetNote(ctx context.Context, location, name string, data []byte) error {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return err
	}
	return s.SetNote(ctx, name, data)
}
