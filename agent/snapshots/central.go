package snapshots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/agent/keylock"
	"diapause.dev/agent/place"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Central are the stores of a cluster, as its controller sees them. It has no spool and no cache, makes no snapshots
// and restores none. Its methods may be called concurrently.
type Central struct{ stored }

// OpenCentral returns the stores of a cluster. Of the options only those of stores count. A store is opened when it is
// needed. After an error nothing is open.
func OpenCentral(o Options) (*Central, error) {
	if err := errors.Join(place.Validate(o.Store), checkCredentials(o.Credentials)); err != nil {
		return nil, err
	}
	o.SigningKey, o.TrustedKeys, o.Opened = "", "", func() {}
	s := &Stores{o: o, log: o.Logger, moving: keylock.New(), named: make(map[string]*Remote)}
	s.own = s.prepare(o.Store)
	return &Central{stored{s}}, nil
}

// Shared reports whether the store at a location is one that all nodes see, and the controller too: a bucket, or a
// directory of a network file system that is mounted here.
func (*Central) Shared(location string) bool {
	there, own := disk(location)
	return !local(location) || there && !own
}

// Remove removes the snapshot with this UID from the store at a location. It is no error if the store does not have it.
// With an empty uid it removes any snapshot with the key.
func (c *Central) Remove(ctx context.Context, k snapshot.Key, uid, location string) error {
	release, err := c.stores.moving.Lock(ctx, k.String())
	if err != nil {
		return err
	}
	defer release()
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", k, err)
	}
	if err := removeThe(ctx, s, k, uid); !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	return nil
}

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
