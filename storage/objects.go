package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/format"
)

// objects are those of one store: its backend, with what is measured of it, and the cache before it. Safe for
// concurrent use.
type objects struct {
	backend Backend
	cache   PackCache // or nil
	log     *slog.Logger

	writes writeSpeed
	reads  readSpeed
}

// location names the store for people and logs.
func (s *objects) location() string { return s.backend.Location() }

// readAll reads a whole object, which must not be longer than max bytes.
func (s *objects) readAll(ctx context.Context, name string, max int64) ([]byte, error) {
	began := s.reads.begin()
	data, err := s.backend.ReadAll(ctx, name, max)
	s.reads.end(began, len(data), err)
	if errors.Is(err, ErrTooLarge) {
		return nil, &CorruptError{Object: name, Reason: "not of this store", Err: err}
	}
	return data, err
}

// readPackUncached reads from a pack of m, past the cache.
func (s *objects) readPackUncached(ctx context.Context, m *Manifest, i uint32, p []byte, off int64) error {
	return s.readObject(ctx, m.PackObject(i), p, off)
}

// readObject reads from the backend, and measures the time.
func (s *objects) readObject(ctx context.Context, name string, p []byte, off int64) error {
	return s.reads.read(len(p), func() error { return s.backend.ReadAt(ctx, name, p, off) })
}

// readPack reads from a pack of m.
func (s *objects) readPack(ctx context.Context, m *Manifest, i uint32, p []byte, off int64) error {
	if s.cache == nil {
		return s.readPackUncached(ctx, m, i, p, off)
	}
	name := m.PackObject(i)
	return s.cache.ReadAt(ctx, name, m.Packs[i].Size, p, off, func(ctx context.Context, p []byte, off int64) error {
		return s.readObject(ctx, name, p, off)
	})
}

// statPack checks that a pack of m exists in its right size.
func (s *objects) statPack(ctx context.Context, m *Manifest, i uint32) error {
	info, err := s.backend.Stat(ctx, m.PackObject(i))
	if err != nil {
		return s.damaged(m, i, "pack", err)
	}
	if info.Size != m.Packs[i].Size {
		return s.damaged(m, i, fmt.Sprintf("pack of %d bytes instead of %d", info.Size, m.Packs[i].Size), nil)
	}
	return nil
}

// damaged returns a CorruptError for a pack. But if err says only that the pack cannot be reached, it returns err.
func (s *objects) damaged(m *Manifest, i uint32, reason string, err error) error {
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrTruncated) {
		return err
	}
	return &CorruptError{Object: m.PackObject(i), Key: m.Meta.Key, Reason: reason, Err: err}
}

// statPacks checks that all packs of a snapshot exist in their right sizes.
func (s *objects) statPacks(ctx context.Context, m *Manifest) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(checks)
	for i := range m.Packs {
		group.Go(func() error { return s.statPack(ctx, m, uint32(i)) })
	}
	return group.Wait()
}

// delete deletes an unneeded object from the backend and from the cache.
func (s *objects) delete(ctx context.Context, o ObjectInfo) error {
	if err := s.backend.Delete(ctx, o.Name); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	failpoint.PackSwept.Hit()
	s.log.Debug("swept", "object", o.Name, "bytes", o.Size)
	if s.cache != nil {
		s.cache.Drop(o.Name, 0, o.Size)
	}
	return nil
}

// namespaces lists the namespaces that have any object.
func (s *objects) namespaces(ctx context.Context) ([]string, error) {
	seen := map[string]bool{}
	var list []string
	err := s.backend.List(ctx, "", func(o ObjectInfo) error {
		ns, ok := format.NamespaceOf(o.Name)
		if ok && !seen[ns] {
			seen[ns] = true
			list = append(list, ns)
		}
		return nil
	})
	return list, err
}
