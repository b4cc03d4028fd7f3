package storage

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/format"
)

// Remove removes a snapshot. It deletes the manifest first, and with it the snapshot ceases to exist. Then it deletes
// the other objects beside the manifest, then the packs and the data key that the snapshot needed. Of packs and keys it
// spares those that another manifest names, or that a writer, a replication or a reader (see Hold) has claimed. If it
// cannot delete packs or keys, it logs this and succeeds: a Sweep deletes them later. If the snapshot does not exist,
// the error is ErrNotFound.
func (c *collector) Remove(ctx context.Context, key Key) error {
	if err := format.CheckKey(key); err != nil {
		return err
	}
	objects, err := c.needs(ctx, key)
	if err == nil {
		err = c.objects.backend.Delete(ctx, format.ManifestName(key))
	}
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", key, err)
	}
	failpoint.ManifestRemoved.Hit()
	if err := c.removeBeside(ctx, key); err != nil {
		return fmt.Errorf("remove snapshot %s: its manifest is gone, objects beside it may be left: %w", key, err)
	}
	failpoint.RestRemoved.Hit()
	if err := c.collect(ctx, key.Namespace, objects); err != nil {
		c.objects.log.Warn("packs of a removed snapshot are left to the next sweep", "snapshot", key.String(), "error", err)
	}
	return nil
}

// needs returns the objects that a snapshot needs, or none if its manifest is damaged.
func (c *collector) needs(ctx context.Context, key Key) ([]ObjectInfo, error) {
	e, err := c.manifests.envelope(ctx, key)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat) {
		c.objects.log.Warn("packs of a damaged snapshot are left to the next sweep", "snapshot", key.String(), "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return neededByEnvelope(e), nil
}

// removeBeside removes the objects beside a manifest.
func (c *collector) removeBeside(ctx context.Context, key Key) error {
	return c.objects.backend.List(ctx, format.SnapshotDir(key), func(o ObjectInfo) error {
		if o.Name == format.ManifestName(key) {
			return nil // it belongs to a snapshot that was made anew meanwhile
		}
		if err := c.objects.backend.Delete(ctx, o.Name); !errors.Is(err, ErrNotFound) {
			return err
		}
		return nil
	})
}

// collect deletes those of the given objects that nothing names or claims, whatever their age. A manifest must have
// named them. So if a writer needs one and has not claimed it yet, either another manifest names it, or the writer
// finds out that it is gone.
func (c *collector) collect(ctx context.Context, namespace string, objects []ObjectInfo) error {
	if len(objects) == 0 {
		return nil
	}
	var result SweepResult
	w := c.newSweep(namespace, SweepOptions{Grace: DefaultGrace}, &result)
	if err := w.begin(ctx); err != nil {
		return err
	}
	return errors.Join(w.collect(ctx, objects), w.end(ctx))
}

// collect gives notice only of objects that are neither named nor claimed, because a writer that finds a notice fails.
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
