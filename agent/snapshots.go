package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Found is a snapshot and where it is.
type Found struct {
	Manifest   *storage.Manifest
	OnNode     bool             // in the spool
	Replicated bool             // in the store
	Timeline   []snapshot.Stage // of its checkpoint, as far as this node knows it
}

// find returns one snapshot.
func (a *Agent) find(ctx context.Context, k snapshot.Key) (*Found, error) {
	f, errs := &Found{}, []error(nil)
	m, err := a.spool.Manifest(ctx, k)
	if err == nil {
		f.Manifest, f.OnNode = m, true
	}
	errs = append(errs, err)
	far, err := a.store.get(ctx)
	if err == nil {
		m, err = far.Manifest(ctx, k)
	}
	if err == nil {
		f.Replicated = true
		if f.Manifest == nil {
			f.Manifest = m
		}
	}
	if f.Manifest == nil {
		return nil, notOnNode(k, append(errs, err))
	}
	f.Timeline = f.Manifest.Meta.Timeline
	if r := a.journal.find(k, a.log); r != nil && len(r.Timeline) > 0 {
		f.Timeline = r.Timeline
	}
	return f, nil
}

// list returns all snapshots of a namespace (empty: all), in the spool and in the store, sorted by
// key, and what is wrong with those that cannot be read. The store being away is an error beside
// what the spool holds.
func (a *Agent) list(ctx context.Context, namespace string) (found []*Found, damaged []string, err error) {
	keys := make(map[snapshot.Key]bool)
	collect := func(e storage.Entry) error {
		keys[e.Key] = true
		return nil
	}
	if err := a.spool.List(ctx, namespace, collect); err != nil {
		return nil, nil, err
	}
	far, err := a.store.get(ctx)
	if err == nil {
		err = far.List(ctx, namespace, collect)
	}
	sorted := slices.SortedFunc(maps.Keys(keys), func(x, y snapshot.Key) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, k := range sorted {
		f, err := a.find(ctx, k)
		switch {
		case err == nil:
			found = append(found, f)
		case !errors.Is(err, storage.ErrNotFound): // else it was removed meanwhile
			damaged = append(damaged, fmt.Sprintf("%s: %v", k, err))
		}
	}
	return found, damaged, err
}

// remove removes a snapshot from the store and from the spool. Packs that it alone used are swept
// later.
func (a *Agent) remove(ctx context.Context, k snapshot.Key) error {
	if err := k.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if a.restores.using(k) {
		return fmt.Errorf("remove snapshot %s: %w: pods are being restored from it; try again when they are loaded", k, ErrInUse)
	}
	release, err := a.moving.take(ctx, k.String())
	if err != nil {
		return err
	}
	defer release()
	far, err := a.store.get(ctx)
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", k, err)
	}
	farErr := far.Remove(ctx, k)
	if farErr != nil && !errors.Is(farErr, storage.ErrNotFound) {
		return farErr
	}
	nearErr := a.spool.Remove(ctx, k)
	if nearErr != nil && !errors.Is(nearErr, storage.ErrNotFound) {
		return nearErr
	}
	if farErr != nil && nearErr != nil {
		return notOnNode(k, nil)
	}
	return nil
}

// verify checks one snapshot wherever it is. The result names every damaged object.
func (a *Agent) verify(ctx context.Context, k snapshot.Key, o storage.VerifyOptions) error {
	if err := k.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	far, err := a.store.get(ctx)
	if err != nil {
		return err
	}
	var errs []error
	seen := false
	for _, s := range []*storage.Store{a.spool, far} {
		m, err := s.Manifest(ctx, k)
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		seen = true
		if err == nil {
			err = s.Verify(ctx, m, o)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Backend().Location(), err))
		}
	}
	if !seen {
		return notOnNode(k, nil)
	}
	return errors.Join(errs...)
}
