package storage

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	"diapause.dev/api/snapshot"
)

// Duplicate makes a second snapshot, meta.Key, of the same packs and under the same data key as one in this store. No
// data is read or written: what is new is the manifest, which this store's key signs. From then on neither needs the
// other. If the first one is removed meanwhile, the error is ErrNotFound, and there is no second one. Nothing is taken
// over from one that this store does not trust, that is known to be damaged, or that is not encrypted while new
// snapshots are.
func (s *Store) Duplicate(ctx context.Context, of *Manifest, meta snapshot.Meta) (*Manifest, error) {
	if err := s.duplicable(ctx, of, meta.Key); err != nil {
		return nil, fmt.Errorf("make snapshot %s of the packs of %s: %w", meta.Key, of.Meta.Key, err)
	}
	l := &lineage{
		seed: maphash.MakeSeed(), digestKey: of.DigestKey, lock: of.DataKey, wrapping: of.Meta.NamespaceKey, parent: of,
		packs: of.Packs,
	}
	w := s.newWriter(ctx, meta.Key, l, WriterOptions{Parent: of, Parallelism: 1})
	for _, f := range of.Files {
		w.queue.files = append(w.queue.files, &FileWriter{
			queue: w.queue, ahead: w.ahead, name: f.Name, size: f.Size, chunks: slices.Clone(f.Chunks), prints: f.Prints,
		})
	}
	return w.Commit(ctx, meta)
}

// otherwiseEncrypted is the error for a snapshot from before encryption was turned on, or off. It is an ErrKey.
type otherwiseEncrypted struct{ encrypted bool }

func (e *otherwiseEncrypted) Error() string {
	if e.encrypted {
		return "it is encrypted, and new snapshots of its namespace are not"
	}
	return "it is not encrypted, and new snapshots of its namespace are"
}

func (e *otherwiseEncrypted) Unwrap() error { return ErrKey }

// duplicable returns an error unless a second snapshot may be made of a manifest's packs, with that key.
func (s *Store) duplicable(ctx context.Context, of *Manifest, key Key) error {
	if of.Meta.Namespace != key.Namespace {
		return fmt.Errorf("%w: it is of another namespace", ErrInvalidName)
	}
	if err := s.Trusts(of); err != nil {
		return err
	}
	keys, err := s.dataKeys.of(key.Namespace)
	if err != nil {
		return err
	}
	if encrypt := keys.Current != nil; encrypt != of.Encrypted() {
		return &otherwiseEncrypted{of.Encrypted()}
	}
	switch exists, err := s.Has(ctx, key); {
	case err != nil:
		return err
	case exists:
		return ErrExists
	}
	if why := s.unusable(ctx, of); why != "" {
		if same, err := s.holds(ctx, of); err == nil && !same {
			return fmt.Errorf("it was removed meanwhile: %w", ErrNotFound)
		}
		return fmt.Errorf("%w: %s", ErrCorrupt, why)
	}
	return nil
}
