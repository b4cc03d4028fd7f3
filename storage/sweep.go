package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage/failpoint"
)

// DefaultGrace is how old a pack must be before it is swept, when nothing else is said. A writer
// must commit within it, counted from its first pack.
const DefaultGrace = 24 * time.Hour

// SweepOptions of Store.Sweep.
type SweepOptions struct {
	Namespace string        // "": each one that the store has, on its own
	Grace     time.Duration // 0: DefaultGrace. Shorter than any writer's life loses snapshots
	DryRun    bool          // delete nothing, tell what would be

	// Progress, if set, is called with the packs looked at and to be looked at, per namespace.
	Progress func(done, total int64)
}

// SweepResult counts packs.
type SweepResult struct {
	Named   int   // kept: a manifest names them
	Young   int   // kept: nothing names them, but they are younger than Grace
	Deleted int   // or, in a dry run, to be deleted
	Bytes   int64 // of those deleted
}

// Sweep deletes the packs that no manifest of their namespace names and that are older than Grace.
// It may run beside writers and readers on any node. In a namespace where any manifest cannot be
// read nothing is deleted, and the error says which one; other namespaces are swept all the same.
func (s *Store) Sweep(ctx context.Context, o SweepOptions) (SweepResult, error) {
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	namespaces := []string{o.Namespace}
	if o.Namespace == "" {
		var err error
		if namespaces, err = s.namespaces(ctx); err != nil {
			return SweepResult{}, fmt.Errorf("sweep: %w", err)
		}
	}
	var result SweepResult
	var errs []error
	for _, ns := range namespaces {
		if err := s.sweepNamespace(ctx, ns, o, &result); err != nil {
			errs = append(errs, fmt.Errorf("sweep namespace %s: %w", ns, err))
		}
	}
	return result, errors.Join(errs...)
}

// namespaces lists those that have any object.
func (s *Store) namespaces(ctx context.Context) ([]string, error) {
	seen := map[string]bool{}
	var list []string
	err := s.backend.List(ctx, "", func(o ObjectInfo) error {
		ns, ok := namespaceOf(o.Name)
		if ok && !seen[ns] {
			seen[ns] = true
			list = append(list, ns)
		}
		return nil
	})
	return list, err
}

func (s *Store) sweepNamespace(ctx context.Context, ns string, o SweepOptions, result *SweepResult) error {
	if err := checkNamespace(ns); err != nil {
		return err
	}
	packs, err := s.listPacks(ctx, ns) // before the manifests: later packs are not looked at
	if err != nil {
		return err
	}
	failpoint.PacksListed.Hit()
	named, err := s.namedPacks(ctx, ns)
	if err != nil {
		return err
	}
	failpoint.ManifestsRead.Hit()
	now := time.Now()
	for i, p := range packs {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case named[p.id]:
			result.Named++
		case now.Sub(p.Modified) < o.Grace:
			result.Young++
		default:
			if err := s.sweepPack(ctx, p, o.DryRun); err != nil {
				return err
			}
			result.Deleted++
			result.Bytes += p.Size
		}
		if o.Progress != nil {
			o.Progress(int64(i+1), int64(len(packs)))
		}
	}
	return nil
}

func (s *Store) sweepPack(ctx context.Context, p listedPack, dry bool) error {
	if dry {
		return nil
	}
	if err := s.backend.Delete(ctx, p.Name); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	failpoint.PackSwept.Hit()
	s.log.Debug("pack swept", "object", p.Name, "bytes", p.Size)
	return nil
}

// listedPack is a pack as a listing shows it.
type listedPack struct {
	ObjectInfo
	id PackID
}

func (s *Store) listPacks(ctx context.Context, ns string) (packs []listedPack, err error) {
	err = s.backend.List(ctx, packDir(ns), func(o ObjectInfo) error {
		if id, ok := parsePackName(ns, o.Name); ok {
			packs = append(packs, listedPack{o, id})
		}
		return nil
	})
	return packs, err
}

// namedPacks returns the packs that any manifest of a namespace names. It goes through the
// manifests twice, and takes what either round saw: a child that is committed while the first round
// passes, and whose parent is removed before the round comes by it, is seen by the second (compare
// Writer.publish).
func (s *Store) namedPacks(ctx context.Context, ns string) (map[PackID]bool, error) {
	named := map[PackID]bool{}
	read := map[Key]time.Time{}
	for range 2 {
		err := s.List(ctx, ns, func(e Entry) error {
			if at, ok := read[e.Key]; ok && at.Equal(e.Modified) {
				return nil
			}
			m, err := s.Manifest(ctx, e.Key)
			if errors.Is(err, ErrNotFound) {
				return nil // removed since it was listed
			}
			if err != nil {
				return err
			}
			read[e.Key] = e.Modified
			for _, p := range m.Packs {
				named[p.ID] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return named, nil
}

// namespaceOf returns the first component of an object's name, if it can be a namespace.
func namespaceOf(object string) (string, bool) {
	for i, c := range []byte(object) {
		if c == '/' {
			ns := object[:i]
			return ns, snapshot.ValidName(ns) && ns != marker
		}
	}
	return "", false
}
