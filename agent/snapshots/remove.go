package snapshots

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Remover removes snapshots from the spool and from stores, except those that sleeping pods or restores need. Its
// methods may be called concurrently.
type Remover struct {
	stores  *Stores
	readers *Readers
	needed  func(k snapshot.Key, uid string) (pod string) // or nil
}

// NewRemover returns what removes the snapshots of a node. Needed says which pod needs a snapshot: one that sleeps, and
// is nowhere else. It returns "" for none. If needed is nil, no pod does.
func NewRemover(s *Stores, readers *Readers, needed func(k snapshot.Key, uid string) (pod string)) *Remover {
	return &Remover{stores: s, readers: readers, needed: needed}
}

// Delete removes a snapshot from all stores and from the spool, and the packs that only it used. If the cluster knows
// the snapshot, the cluster removes it.
func (c *Remover) Delete(ctx context.Context, k snapshot.Key) error {
	if err := k.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	if err := c.guard(k, ""); err != nil {
		return err
	}
	if c.readers.Using(k) {
		return fmt.Errorf("remove snapshot %s: %w: pods are being restored from it; try again when they are loaded", k,
			errkind.ErrInUse)
	}
	if c.stores.o.Cluster != nil {
		if known, err := c.stores.o.Cluster.Remove(ctx, k); known || err != nil {
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

// removeFrom removes a snapshot from all given stores that have it, in this order. See removeThe for uid.
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

// removeThe removes the snapshot with this UID from a store; if uid is empty, any snapshot with the key. If another
// snapshot has the key, the error is storage.ErrNotFound. A damaged manifest is removed, although its UID is unknown.
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

// Remove removes the snapshot with this UID from the spool and from the store at a location, to which it was to be
// replicated. It is no error if neither has it. Remove waits for a replication under way. With an empty uid it removes
// any snapshot with the key.
func (c *Remover) Remove(ctx context.Context, k snapshot.Key, uid, location string) error {
	if err := c.guard(k, uid); err != nil {
		return err
	}
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

// Withdraw removes the snapshot with this UID from the spool, even while a restore reads it. It waits for a replication
// under way; afterwards none begins. It fails while a pod sleeps that needs the snapshot. It is no error if the spool
// does not have it. With an empty uid it removes any snapshot with the key.
func (c *Remover) Withdraw(ctx context.Context, k snapshot.Key, uid string) error {
	if err := c.guard(k, uid); err != nil {
		return err
	}
	return c.fromSpool(ctx, k, uid)
}

// Forget removes this node's own copy of the snapshot with this UID; it fails while a restore reads it, or a pod
// sleeps that needs it. It is no error if there is no copy. With an empty uid it removes any snapshot with the key.
func (c *Remover) Forget(ctx context.Context, k snapshot.Key, uid string) error {
	if there, err := c.stores.spool.Has(ctx, k); err != nil || !there {
		return err
	}
	if err := c.guard(k, uid); err != nil {
		return err
	}
	if c.readers.Using(k) {
		return fmt.Errorf("forget snapshot %s: %w", k, errkind.ErrInUse)
	}
	return c.fromSpool(ctx, k, uid)
}

// fromSpool removes a snapshot from the spool. It is no error if the spool does not have it.
func (c *Remover) fromSpool(ctx context.Context, k snapshot.Key, uid string) error {
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

// guard returns an error if a pod that sleeps needs the snapshot with this UID; if uid is empty, any with the key.
func (c *Remover) guard(k snapshot.Key, uid string) error {
	if c.needed == nil {
		return nil
	}
	if pod := c.needed(k, uid); pod != "" {
		return fmt.Errorf("remove snapshot %s: %w: pod %s sleeps, and is woken from it: wake or delete the pod first", k,
			errkind.ErrInUse, pod)
	}
	return nil
}

// removedMeanwhile reports whether a snapshot that existed has been removed since, which means that it is not damaged.
func removedMeanwhile(ctx context.Context, s *storage.Store, k snapshot.Key) bool {
	there, err := s.Has(ctx, k)
	return err == nil && !there
}
