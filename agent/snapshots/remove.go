package snapshots

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Removal says which snapshot is removed, and from where.
type Removal struct {
	ID       ID // with a UID, another snapshot that has the key stays; without one, whichever has the key is removed
	From     From
	Location string // of the store, for FromStore; empty: the agent's own
	InUse    InUse
	// Exact leaves what may be another snapshot: one whose manifest is damaged, and, if ID.UID is empty, one with a UID.
	Exact bool
}

// From says from where snapshots are removed: FromEverywhere, or one or both of FromSpool and FromStore.
type From uint8

// Where snapshots are.
const (
	FromSpool  From = 1 << iota // the spool of this node
	FromStore                   // the store at a location
	fromStores                  // all stores
	// FromEverywhere is the spool and all stores. If the cluster knows the snapshot, the cluster removes all of it.
	FromEverywhere = FromSpool | fromStores
)

// InUse says what becomes of a removal if a restore on this node reads a snapshot that has the key.
type InUse uint8

// What becomes of such a removal.
const (
	InUseFails   InUse = iota // it fails with errkind.ErrInUse
	InUseIgnored              // it goes on, and so does the restore: see Readers
)

// Remover removes snapshots from the spool and from stores, except those that sleeping pods or restores need. Its
// methods may be called concurrently.
type Remover struct {
	stores  *Stores
	readers *Readers                                      // or nil: no restore reads anything
	needed  func(k snapshot.Key, uid string) (pod string) // or nil
}

// NewRemover returns what removes the snapshots of a node. Needed says which pod needs a snapshot: one that sleeps, and
// is nowhere else. It returns "" for none. If needed is nil, no pod does.
func NewRemover(s *Stores, readers *Readers, needed func(k snapshot.Key, uid string) (pod string)) *Remover {
	return &Remover{stores: s, readers: readers, needed: needed}
}

// Remove removes a snapshot, and the packs that only it used. It is an error of kind storage.ErrNotFound if it is
// removed from everywhere and was nowhere; otherwise that is no error.
//
// From the spool nothing is removed while a pod sleeps that needs the snapshot. Remove waits for a replication of the
// snapshot that is under way; once the spool no longer has it, none begins.
func (c *Remover) Remove(ctx context.Context, r Removal) error {
	if r.From == FromSpool && r.InUse == InUseFails { // what is not there is not in use
		if there, err := c.stores.spool.Has(ctx, r.ID.Key); err != nil || !there {
			return err
		}
	}
	if err := c.mayRemove(r); err != nil {
		return err
	}
	if r.From == FromEverywhere && c.stores.o.Cluster != nil {
		if known, err := c.stores.o.Cluster.Remove(ctx, r.ID.Key); known || err != nil {
			return err
		}
	}
	release, err := c.stores.moving.Lock(ctx, r.ID.Key.String())
	if err != nil {
		return err
	}
	defer release()
	places, err := c.places(ctx, r)
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", r.ID.Key, err)
	}
	err = removeFrom(ctx, r, places)
	if r.From != FromEverywhere && errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}

// mayRemove returns why a snapshot must not be removed now, or nil.
func (c *Remover) mayRemove(r Removal) error {
	k := r.ID.Key
	if r.From == 0 {
		return fmt.Errorf("%w: it is not said from where snapshot %s is to be removed", errkind.ErrInvalid, k)
	}
	if r.From == FromEverywhere {
		if err := k.Validate(); err != nil {
			return fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
		}
	}
	if r.From&FromSpool != 0 {
		if err := c.guard(k, r.ID.UID); err != nil {
			return err
		}
	}
	switch {
	case r.InUse == InUseIgnored || c.readers == nil || !c.readers.Using(k):
		return nil
	case r.From == FromEverywhere:
		return fmt.Errorf("remove snapshot %s: %w: pods are being restored from it; try again when they are loaded", k,
			errkind.ErrInUse)
	case r.From == FromSpool:
		return fmt.Errorf("forget snapshot %s: %w", k, errkind.ErrInUse)
	}
	return fmt.Errorf("remove snapshot %s: %w", k, errkind.ErrInUse)
}

// places returns the stores that a snapshot is removed from, in this order. If it is removed from everywhere, the spool
// comes last: after a failure the snapshot is still on this node. Otherwise it comes first: after a failure no
// replication begins.
func (c *Remover) places(ctx context.Context, r Removal) (places []*storage.Store, err error) {
	if r.From == FromEverywhere {
		far, err := c.stores.Everywhere(ctx)
		return append(far, c.stores.spool), err
	}
	if r.From&FromSpool != 0 {
		places = append(places, c.stores.spool)
	}
	if r.From&FromStore != 0 {
		far, err := c.stores.Get(ctx, r.Location)
		return append(places, far), err
	}
	return places, nil
}

// removeFrom removes a snapshot from all given stores that have it, in this order.
func removeFrom(ctx context.Context, r Removal, stores []*storage.Store) error {
	removed := false
	for _, s := range stores {
		err := removeThe(ctx, s, r)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		removed = removed || err == nil
	}
	if !removed {
		return notOnNode(r.ID.Key, nil)
	}
	return nil
}

// removeThe removes a snapshot from a store. If another snapshot has the key, the error is storage.ErrNotFound.
func removeThe(ctx context.Context, s *storage.Store, r Removal) error {
	k, uid := r.ID.Key, r.ID.UID
	if uid == "" && !r.Exact {
		return s.Remove(ctx, k)
	}
	m, err := s.Manifest(ctx, k)
	var corrupt *storage.CorruptError
	switch {
	case errors.As(err, &corrupt) && !r.Exact:
	case err != nil:
		return err
	case m.Meta.UID != uid:
		return fmt.Errorf("snapshot %s of UID %s: %w: another one has its name", k, uid, storage.ErrNotFound)
	}
	return s.Remove(ctx, k)
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
