package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Found is a snapshot and where it is.
type Found struct {
	Manifest   *storage.Manifest
	OnNode     bool             // in the spool, and not known to be damaged there
	Replicated bool             // in a store
	Store      string           // the location of that store
	Timeline   []snapshot.Stage // of its checkpoint, as far as this node knows it
	Problem    string           // why it is not in a store, or damaged on this node; empty: nothing is known to be wrong
}

// find returns one snapshot.
func (a *Agent) find(ctx context.Context, k snapshot.Key) (*Found, error) {
	far, err := a.openStores(ctx)
	return a.findWith(ctx, k, far, err)
}

// findAt is find for a snapshot whose store is known.
func (a *Agent) findAt(ctx context.Context, k snapshot.Key, location string) (*Found, error) {
	s, err := a.stores.get(ctx, location)
	if err != nil {
		return a.findWith(ctx, k, nil, err)
	}
	return a.findWith(ctx, k, []*storage.Store{s}, nil)
}

func (a *Agent) findWith(ctx context.Context, k snapshot.Key, far []*storage.Store, farErr error) (*Found, error) {
	f, err := a.findIn(ctx, k, far, farErr)
	if err != nil {
		return nil, err
	}
	f.remember(a.journal.Timeline(f.Manifest.Meta.UID))
	return f, nil
}

// openStores returns every store that can be had, those that the cluster names included, and why others
// cannot.
func (a *Agent) openStores(ctx context.Context) ([]*storage.Store, error) {
	var errs []error
	if a.cluster != nil {
		locations, err := a.cluster.Stores(ctx)
		errs = append(errs, err)
		for _, location := range locations {
			_, err := a.stores.at(location)
			errs = append(errs, err)
		}
	}
	open, err := a.stores.open(ctx)
	return open, errors.Join(append(errs, err)...)
}

// remember takes the timeline that this node knows: a manifest holds only what came before it.
func (f *Found) remember(t []snapshot.Stage) {
	if len(t) > 0 {
		f.Timeline = t
	}
}

// findIn is find in the spool and in the stores given; farErr is why others could not be had.
func (a *Agent) findIn(ctx context.Context, k snapshot.Key, far []*storage.Store, farErr error) (*Found, error) {
	f := &Found{}
	m, err := a.spool.Manifest(ctx, k)
	if err == nil {
		f.Manifest, f.OnNode = m, true
	}
	errs := []error{err, farErr}
	for _, s := range far {
		m, err := farManifest(ctx, s, k, f.OnNode)
		switch {
		case err != nil:
			errs = append(errs, err)
		case f.Manifest == nil:
			f.Manifest, f.Replicated, f.Store = m, true, s.Backend().Location()
		case m.Meta.UID == f.Manifest.Meta.UID: // another one may have that name there
			f.Replicated, f.Store = true, s.Backend().Location()
		}
	}
	if f.Manifest == nil {
		return nil, notOnNode(k, errs)
	}
	f.Timeline = f.Manifest.Meta.Timeline
	if f.OnNode {
		a.examine(ctx, f)
	}
	return f, nil
}

// examine finds out what is wrong with a snapshot in the spool.
func (a *Agent) examine(ctx context.Context, f *Found) {
	reason, err := a.spool.Damaged(ctx, f.Manifest.Meta.Key)
	if err != nil {
		reason = err.Error()
	}
	f.OnNode, f.Problem = reason == "", reason
	if reason == "" && !f.Replicated {
		f.Problem = a.lagging.of(f.Manifest.Meta.UID)
	}
}

// farManifest returns the manifest in the store. For a snapshot that is on the node anyway it does
// not wait long.
func farManifest(ctx context.Context, far *storage.Store, k snapshot.Key, onNode bool) (*storage.Manifest, error) {
	if onNode {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lookTime)
		defer cancel()
	}
	return far.Manifest(ctx, k)
}

// listTime bounds how long a list waits for the store: what is on the node is told all the same.
const listTime = 20 * time.Second

// list returns all snapshots of a namespace (empty: all), in the spool and in the stores, sorted by
// key, and what is wrong with those that cannot be read. That a store is away, which is named, is an
// error beside what the others hold.
func (a *Agent) list(ctx context.Context, namespace string) (found []*Found, damaged []string, err error) {
	keys := make(map[snapshot.Key]bool)
	collect := func(e storage.Entry) error {
		keys[e.Key] = true
		return nil
	}
	open, away := a.openStores(ctx)
	var far []*storage.Store
	for _, s := range append(open, a.spool) {
		look, cancel := context.WithTimeout(ctx, listTime)
		err := s.List(look, namespace, collect)
		cancel()
		if err != nil {
			away = errors.Join(away, fmt.Errorf("list %s: %w", s.Backend().Location(), err))
		} else if s != a.spool {
			far = append(far, s)
		}
	}
	sorted := slices.SortedFunc(maps.Keys(keys), func(x, y snapshot.Key) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	timelines := a.journal.Timelines()
	for _, k := range sorted {
		f, err := a.findIn(ctx, k, far, nil)
		switch {
		case err == nil:
			f.remember(timelines[f.Manifest.Meta.UID])
			found = append(found, f)
		case errors.Is(err, storage.ErrUnavailable):
			away = errors.Join(away, err)
		case !errors.Is(err, storage.ErrNotFound): // else it was removed meanwhile
			damaged = append(damaged, fmt.Sprintf("%s: %v", k, err))
		}
	}
	return found, damaged, away
}

// remove removes a snapshot from the store and from the spool, by way of the cluster if that knows
// it. Packs that it alone used go with it.
func (a *Agent) remove(ctx context.Context, k snapshot.Key) error {
	if err := k.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	if a.restores.using(k) {
		return fmt.Errorf("remove snapshot %s: %w: pods are being restored from it; try again when they are loaded", k,
			errkind.ErrInUse)
	}
	if a.cluster != nil {
		if known, err := a.cluster.Remove(ctx, k); known || err != nil {
			return err
		}
	}
	release, err := a.moving.Lock(ctx, k.String())
	if err != nil {
		return err
	}
	defer release()
	far, err := a.openStores(ctx)
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", k, err)
	}
	return removeFrom(ctx, k, "", append(far, a.spool))
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
func (a *Agent) Remove(ctx context.Context, k snapshot.Key, uid, location string) error {
	release, err := a.moving.Lock(ctx, k.String())
	if err != nil {
		return err
	}
	defer release()
	far, err := a.stores.get(ctx, location)
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", k, err)
	}
	if err := removeFrom(ctx, k, uid, []*storage.Store{a.spool, far}); !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	return nil
}

// Forget removes this node's own copy of the snapshot of a UID, which nothing is being restored from. None is
// no error. An empty UID is that of whichever snapshot has the key.
func (a *Agent) Forget(ctx context.Context, k snapshot.Key, uid string) error {
	if there, err := a.spool.Has(ctx, k); err != nil || !there {
		return err
	}
	if a.restores.using(k) {
		return fmt.Errorf("forget snapshot %s: %w", k, errkind.ErrInUse)
	}
	release, err := a.moving.Lock(ctx, k.String())
	if err != nil {
		return err
	}
	defer release()
	if err := removeThe(ctx, a.spool, k, uid); !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	return nil
}

// removedMeanwhile reports whether a snapshot that was there has gone since, and so is not damaged.
func removedMeanwhile(ctx context.Context, s *storage.Store, k snapshot.Key) bool {
	there, err := s.Has(ctx, k)
	return err == nil && !there
}
