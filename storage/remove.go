package storage

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/storage/failpoint"
)

// Remove removes a snapshot: its manifest first, with which it ceases to exist, then what else is
// kept beside it, then the packs and the data key that it needed. Of these it spares what another
// manifest names, and what a writer, a replication or a reader (see Hold) has laid claim to. If they
// cannot be deleted, this is logged and a Sweep deletes them later: the snapshot is removed all the
// same. A snapshot that does not exist is ErrNotFound.
func (s *Store) Remove(ctx context.Context, key Key) error {
	if err := checkKey(key); err != nil {
		return err
	}
	objects, err := s.needs(ctx, key)
	if err == nil {
		err = s.backend.Delete(ctx, manifestName(key))
	}
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", key, err)
	}
	failpoint.ManifestRemoved.Hit()
	if err := s.removeBeside(ctx, key); err != nil {
		return fmt.Errorf("remove snapshot %s: its manifest is gone, objects beside it may be left: %w", key, err)
	}
	failpoint.RestRemoved.Hit()
	if err := s.collect(ctx, key.Namespace, objects); err != nil {
		s.log.Warn("packs of a removed snapshot are left to the next sweep", "snapshot", key.String(), "error", err)
	}
	return nil
}

// needs returns the objects that a snapshot needs; none if its manifest is damaged.
func (s *Store) needs(ctx context.Context, key Key) ([]ObjectInfo, error) {
	e, err := s.envelope(ctx, key)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat) {
		s.log.Warn("packs of a damaged snapshot are left to the next sweep", "snapshot", key.String(), "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return e.needs(), nil
}

// removeBeside removes what lies beside a manifest.
func (s *Store) removeBeside(ctx context.Context, key Key) error {
	return s.backend.List(ctx, snapshotDir(key), func(o ObjectInfo) error {
		if o.Name == manifestName(key) {
			return nil // of a snapshot made anew meanwhile
		}
		if err := s.backend.Delete(ctx, o.Name); !errors.Is(err, ErrNotFound) {
			return err
		}
		return nil
	})
}

// collect deletes those objects of a namespace that nothing names or claims, whatever their age. They
// must have been named by a manifest: then a writer that has not laid claim to them yet either has
// another manifest that names them, or finds out that they are gone.
func (s *Store) collect(ctx context.Context, namespace string, objects []ObjectInfo) error {
	if len(objects) == 0 {
		return nil
	}
	var result SweepResult
	w := s.newSweep(namespace, SweepOptions{Grace: DefaultGrace}, &result)
	if err := w.begin(ctx); err != nil {
		return err
	}
	return errors.Join(w.collect(ctx, objects), w.end(ctx))
}

// collect gives no notice of what is named or claimed already, since a writer takes a notice for a
// reason to fail.
func (w *sweep) collect(ctx context.Context, objects []ObjectInfo) error {
	if err := w.readClaims(ctx); err != nil {
		return err
	}
	if err := w.readManifests(ctx); err != nil {
		return err
	}
	var condemned []ObjectInfo
	for _, o := range objects {
		if !w.isNamed(o.Name) && !w.claimed[o.Name] {
			condemned = append(condemned, o)
		}
	}
	return w.rounds(ctx, condemned, func(int) {})
}
