package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/storage"
)

// kept is a snapshot in the spool.
type kept struct {
	entry  storage.Entry
	uid    string
	stored int64 // bytes of packs that it names
	used   time.Time
}

// shrinkCache evicts snapshots from the spool, the least recently used first, until the rest is within
// the bound. Only those go that a store has too, and that nothing is being restored from. One that
// cannot be evicted does not keep the others.
func (a *Agent) shrinkCache(ctx context.Context) error {
	all, err := a.inSpool(ctx)
	if err != nil {
		return err
	}
	excess := a.cache.bytes() - a.cfg.CacheSize
	for _, k := range all {
		excess += k.stored
	}
	var errs []error
	for _, k := range all {
		if excess <= 0 {
			break
		}
		evicted, err := a.evict(ctx, k)
		if evicted {
			excess -= k.stored
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("evict snapshot %s: %w", k.entry.Key, err))
		}
	}
	return errors.Join(errs...)
}

// inSpool returns the snapshots in the spool, the least recently used first. It reads only manifests
// that are new since it was called last.
func (a *Agent) inSpool(ctx context.Context) ([]kept, error) {
	before := a.spooled
	a.spooled = make(map[storage.Key]kept)
	here := make(map[string]bool)
	err := a.spool.List(ctx, "", func(e storage.Entry) error {
		k, known := before[e.Key]
		if !known || k.entry != e {
			k = a.readKept(ctx, e)
		}
		if k.uid != "" {
			k.used = a.uses.last(k.uid, e.Modified)
			a.spooled[e.Key], here[k.uid] = k, true
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	var out []kept
	for _, k := range a.spooled {
		out = append(out, k)
	}
	slices.SortFunc(out, func(x, y kept) int { return x.used.Compare(y.used) })
	return out, a.uses.keep(here)
}

// readKept reads what a snapshot in the spool is; without a UID: it cannot be read.
func (a *Agent) readKept(ctx context.Context, e storage.Entry) kept {
	m, err := a.spool.Manifest(ctx, e.Key)
	if err != nil {
		if !errors.Is(err, storage.ErrNotFound) { // else it was removed meanwhile
			a.log.Warn("manifest in the spool unreadable", "snapshot", e.Key.String(), "error", err)
		}
		return kept{}
	}
	return kept{entry: e, uid: m.Meta.UID, stored: m.Stats().StoredBytes}
}

// evict removes a snapshot from the spool, if a store has it and nothing is being restored from it. It
// does not wait for whoever is replicating or removing it. Meanwhile nobody can remove it and make
// another one of its name: what is removed is the very snapshot that was looked at.
func (a *Agent) evict(ctx context.Context, k kept) (bool, error) {
	release := a.moving.TryLock(k.entry.Key.String())
	if release == nil {
		return false, nil
	}
	defer release()
	m, err := a.spool.Manifest(ctx, k.entry.Key)
	if err != nil || m.Meta.UID != k.uid || a.restores.using(k.entry.Key) {
		return false, err
	}
	if safe, err := a.elsewhere(ctx, m); err != nil || !safe {
		return false, err
	}
	if err := a.spool.Remove(ctx, k.entry.Key); err != nil {
		return false, err
	}
	return true, nil
}

// elsewhere reports whether a store has a snapshot of the spool, and not another one of its name. The
// journal knows it of recent ones; of the others the stores are asked.
func (a *Agent) elsewhere(ctx context.Context, m *storage.Manifest) (bool, error) {
	for _, r := range a.journal.Where(func(r *journal.Record) bool { return r.UID == m.Meta.UID }) {
		if r.Stage == journal.StageReplicated || !r.Ended() {
			return r.Ended(), nil
		}
	}
	stores, away := a.openStores(ctx)
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
