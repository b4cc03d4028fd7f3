package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// SweepGrace is how old a pack must be before a sweep of a node may delete it. Checkpoints and replications write packs
// first, and manifests that name these packs later. It is also the default of "diapause gc", which sweeps far stores,
// too. A sweep ignores the claim of a writer once the claim is as old as this grace.
const SweepGrace = time.Hour

// Evictor bounds what a node keeps on its disk for restores. It belongs to one goroutine.
type Evictor struct {
	stores  *Stores
	readers *Readers
	journal *journal.Journal
	guard   func(k snapshot.Key, uid string) error // returns an error if a sleeping pod needs it, see restore.Needs
	known   map[storage.Key]kept                   // manifests in the spool that were read before
	log     *slog.Logger
}

// NewEvictor returns the evictor for a catalog's stores.
func NewEvictor(c *Catalog) *Evictor {
	return &Evictor{stores: c.stores, readers: c.readers, journal: c.journal, guard: c.guard, log: c.stores.log}
}

// Tidy removes from this node everything beyond the bound, packs that nothing names, blocks deleted in the stores, and
// records of stores that nothing refers to.
func (v *Evictor) Tidy(ctx context.Context) {
	if err := v.shrinkSpool(ctx); err != nil {
		v.log.Warn("spool not shrunk", "error", err)
	}
	if _, err := v.stores.spool.Sweep(ctx, storage.SweepOptions{Grace: SweepGrace}); err != nil {
		v.log.Warn("spool not swept", "error", err)
	}
	if err := v.forgetDeleted(ctx); err != nil {
		v.log.Warn("the cache may hold blocks of deleted snapshots", "error", err)
	}
	if err := v.stores.forgetStores(ctx, v.journal); err != nil {
		v.log.Warn("the records of stores exceed their bound", "error", err)
	}
}

// forgetDeleted removes from this node's cache all blocks of objects that no store has any longer: other nodes delete
// snapshots, too. If any store cannot be listed, the cache stays as it is.
func (v *Evictor) forgetDeleted(ctx context.Context) error {
	c := v.stores.cache.due()
	if c == nil {
		return nil
	}
	far, err := v.stores.Everywhere(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, st := range far {
		err := st.Backend().List(ctx, "", func(o storage.ObjectInfo) error {
			there[o.Name] = true
			return nil
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", st.Backend().Location(), err)
		}
	}
	if n := c.Retain(maps.Keys(there)); n > 0 {
		v.log.Info("removed from the cache what was deleted in the store", "blocks", n)
	}
	v.stores.cache.noteTidied()
	return nil
}

// kept is what the Evictor knows of a snapshot in the spool.
type kept struct {
	listed storage.Listed
	uid    string
	stored int64 // bytes of the packs that it names
	used   time.Time
}

// shrinkSpool evicts snapshots from the spool, the least recently used first, until the rest is within the bound. It
// evicts only snapshots that a store has, too, that no restore reads, and that no pod that sleeps needs. If one cannot
// be evicted, it goes on with the others. The blocks of the block cache count towards the bound, but they are not
// evicted here: storage/cache evicts them, by an order of its own.
func (v *Evictor) shrinkSpool(ctx context.Context) error {
	all, err := v.inSpool(ctx)
	if err != nil {
		return err
	}
	excess := v.stores.cache.bytes() - v.stores.o.CacheSize
	for _, k := range all {
		excess += k.stored
	}
	var errs []error
	for _, k := range all {
		if excess <= 0 {
			break
		}
		evicted, err := v.evict(ctx, k)
		if evicted {
			excess -= k.stored
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("evict snapshot %s: %w", k.listed.Key, err))
		}
	}
	return errors.Join(errs...)
}

// inSpool returns the snapshots in the spool, the least recently used first. It reads only manifests that are new since
// the last call.
func (v *Evictor) inSpool(ctx context.Context) ([]kept, error) {
	before := v.known
	v.known = make(map[storage.Key]kept)
	here := make(map[string]bool)
	err := v.stores.spool.List(ctx, "", func(e storage.Listed) error {
		k, known := before[e.Key]
		if !known || k.listed != e {
			k = v.readKept(ctx, e)
		}
		if k.uid != "" {
			k.used = v.readers.uses.last(k.uid, e.Modified)
			v.known[e.Key], here[k.uid] = k, true
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	var out []kept
	for _, k := range v.known {
		out = append(out, k)
	}
	slices.SortFunc(out, func(x, y kept) int { return x.used.Compare(y.used) })
	return out, v.readers.uses.keep(here)
}

// readKept reads the manifest of a snapshot in the spool. If that fails, the result has no UID.
func (v *Evictor) readKept(ctx context.Context, e storage.Listed) kept {
	m, err := v.stores.spool.Manifest(ctx, e.Key)
	if err != nil {
		if !errors.Is(err, storage.ErrNotFound) { // else it was removed meanwhile
			v.log.Warn("manifest in the spool unreadable", "snapshot", e.Key.String(), "error", err)
		}
		return kept{}
	}
	return kept{listed: e, uid: m.Meta.UID, stored: m.Stats().StoredBytes}
}

// evict removes a snapshot from the spool if a store has it, no restore reads it, and no pod that sleeps needs it. If a
// replication, removal or repair of it is under way, evict does nothing. The lock makes sure that the snapshot that is
// removed is the one that was checked: nobody can replace it by another one of the same name meanwhile.
func (v *Evictor) evict(ctx context.Context, k kept) (bool, error) {
	release := v.stores.moving.TryLock(k.listed.Key.String())
	if release == nil {
		return false, nil
	}
	defer release()
	m, err := v.stores.spool.Manifest(ctx, k.listed.Key)
	if err != nil || m.Meta.UID != k.uid || v.readers.Using(k.listed.Key) {
		return false, err
	}
	if safe, err := v.elsewhere(ctx, m); err != nil || !safe || v.guard(k.listed.Key, k.uid) != nil {
		return false, err
	}
	if err := v.stores.spool.Remove(ctx, k.listed.Key); err != nil {
		return false, err
	}
	return true, nil
}

// elsewhere reports whether a store has this very snapshot, not only another one of the same name. For recent snapshots
// the journal knows; for others it asks the stores.
func (v *Evictor) elsewhere(ctx context.Context, m *storage.Manifest) (bool, error) {
	for _, r := range v.journal.Where(func(r *journal.Record) bool { return r.UID == m.Meta.UID }) {
		if r.Stage == journal.StageReplicated || !r.Ended() {
			return r.Ended(), nil
		}
	}
	stores, away := v.stores.Everywhere(ctx)
	for _, s := range stores {
		far, err := s.Manifest(ctx, m.Meta.Key)
		switch {
		case err == nil && far.Meta.UID == m.Meta.UID:
			return true, nil
		case err != nil && !errors.Is(err, storage.ErrNotFound):
			away = errors.Join(away, err)
		}
	}
	return false, away
}
