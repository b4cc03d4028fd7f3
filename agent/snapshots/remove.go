package snapshots

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Delete removes a snapshot from the store and from the spool, by way of the cluster if that knows
// it. Packs that it alone used go with it.
func (c *Catalog) Delete(ctx context.Context, k snapshot.Key) error {
	if err := k.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	if c.readers.Using(k) {
		return fmt.Errorf("remove snapshot %s: %w: pods are being restored from it; try again when they are loaded", k,
			errkind.ErrInUse)
	}
	if c.stores.cluster != nil {
		if known, err := c.stores.cluster.Remove(ctx, k); known || err != nil {
			return err
		}
	}
	release, err := c.stores.moving.Lock(ctx, k.String())
	if err != nil {
		return err
	}
	defer release()
	far, err := c.stores.Everywhere(ctx)
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", k, err)
	}
	return removeFrom(ctx, k, "", append(far, c.stores.spool))
}

// removeFrom removes a snapshot from all stores that have it, in this order. See removeThe for uid.
func removeFrom(ctx context.Context, k snapshot.Key, uid string, stores []*storage.Store) error {
	removed := false
	for _, s := range stores {
		err := removeThe(ctx, s, k, uid)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		removed = removed || err == nil
	}
	if !removed {
		return notOnNode(k, nil)
	}
	return nil
}

// removeThe removes the snapshot of a UID from a store, or whichever has the key if that is empty. One that is
// another's is storage.ErrNotFound; a damaged manifest, which tells no UID, goes.
func removeThe(ctx context.Context, s *storage.Store, k snapshot.Key, uid string) error {
	if uid == "" {
		return s.Remove(ctx, k)
	}
	m, err := s.Manifest(ctx, k)
	var corrupt *storage.CorruptError
	switch {
	case errors.As(err, &corrupt):
	case err != nil:
		return err
	case m.Meta.UID != uid:
		return fmt.Errorf("snapshot %s of UID %s: %w: another one has its name", k, uid, storage.ErrNotFound)
	}
	return s.Remove(ctx, k)
}

// Remove removes the snapshot of a UID from the store at a location, which is where it was to be replicated
// to, and from the spool. One that is in neither is no error. It waits for a replication under way. An empty UID is
// that of whichever snapshot has the key.
func (c *Catalog) Remove(ctx context.Context, k snapshot.Key, uid, location string) error {
	release, err := c.stores.moving.Lock(ctx, k.String())
	if err != nil {
		return err
	}
	defer release()
	far, err := c.stores.Get(ctx, location)
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", k, err)
	}
	if err := removeFrom(ctx, k, uid, []*storage.Store{c.stores.spool, far}); !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	return nil
}

// Forget removes this node's own copy of the snapshot of a UID, which nothing is being restored from. None is
// no error. An empty UID is that of whichever snapshot has the key.
func (c *Catalog) Forget(ctx context.Context, k snapshot.Key, uid string) error {
	if there, err := c.stores.spool.Has(ctx, k); err != nil || !there {
		return err
	}
	if c.readers.Using(k) {
		return fmt.Errorf("forget snapshot %s: %w", k, errkind.ErrInUse)
	}
	release, err := c.stores.moving.Lock(ctx, k.String())
	if err != nil {
		return err
	}
	defer release()
	if err := removeThe(ctx, c.stores.spool, k, uid); !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	return nil
}

// removedMeanwhile reports whether a snapshot that was there has gone since, and so is not damaged.
func removedMeanwhile(ctx context.Context, s *storage.Store, k snapshot.Key) bool {
	there, err := s.Has(ctx, k)
	return err == nil && !there
}
