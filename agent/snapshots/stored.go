package snapshots

import (
	"context"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// stored are the stores of a cluster, for those that look after what is stored there.
type stored struct{ stores *Stores }

// Stored calls fn for each snapshot in the store at a location, in no particular order. It reads no manifest. An error
// of fn ends the listing and is returned.
func (c stored) Stored(ctx context.Context, location string, fn func(storage.Listed) error) error {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return err
	}
	return s.List(ctx, "", fn)
}

// ProbeStore returns why the store at a location does not answer, or nil if it does.
func (c stored) ProbeStore(ctx context.Context, location string) error {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return err
	}
	return s.Probe(ctx)
}

// StoredManifest returns the manifest of a snapshot from the store at a location.
func (c stored) StoredManifest(ctx context.Context, k snapshot.Key, location string) (*storage.Manifest, error) {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return nil, err
	}
	return s.Manifest(ctx, k)
}

// SweepStore removes from the store at a location everything that no snapshot there names and that is old enough: no
// writer is about to name it.
func (c stored) SweepStore(ctx context.Context, location string) (storage.SweepResult, error) {
	s, err := c.stores.Get(ctx, location)
	if err != nil {
		return storage.SweepResult{}, err
	}
	return s.Sweep(ctx, storage.SweepOptions{})
}

// OwnDisk reports whether the store at a location is certainly on a disk of this node that no other node can see.
func (stored) OwnDisk(location string) bool {
	there, own := disk(location)
	return there && own
}
