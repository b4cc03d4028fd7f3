package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// Verified is the result of verifying a snapshot.
type Verified struct {
	Err      error    // names every damaged object; nil: the snapshot is whole
	Repaired []string // objects, each after the store that it is in
	AlsoHurt []string // other snapshots that use a damaged object that could not be repaired
	// Signatures has an entry for each place where the manifest can be read.
	Signatures []Signature
}

// verifier verifies snapshots in all places that have them, and repairs them.
type verifier struct {
	stores       *Stores
	damage       *spoolDamage
	replications *replications
	wake         func() // the replicator
	log          *slog.Logger
}

// Verify checks one snapshot in every place that has it, and repairs it if asked to. err says why it could not check.
func (c *verifier) Verify(ctx context.Context, k snapshot.Key, o storage.VerifyOptions,
	repair bool,
) (v Verified, err error) {
	if err := k.Validate(); err != nil {
		return v, fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	far, err := c.stores.Everywhere(ctx)
	if err != nil {
		return v, err
	}
	places, err := having(ctx, k, append([]*storage.Store{c.stores.spool}, far...))
	if err != nil {
		return v, err
	}
	if len(places) == 0 {
		return v, notOnNode(k, nil)
	}
	if repair {
		return c.repair(ctx, k, places, o.Progress)
	}
	var errs []error
	for _, s := range places {
		m, err := s.Manifest(ctx, k)
		if err == nil {
			v.Signatures = append(v.Signatures, signatureOf(s, m))
			err = s.Verify(ctx, m, o)
		}
		if err != nil && removedMeanwhile(ctx, s, k) {
			continue
		}
		errs = append(errs, in(s, err))
	}
	gone, err := c.replications.missing(ctx, k)
	if err != nil {
		return v, err
	}
	for _, r := range gone {
		errs = append(errs, &storage.CorruptError{
			Object: r.store, Key: k, Reason: "it was replicated to this store, and is no longer there",
		})
	}
	v.Err = errors.Join(errs...)
	if !isDamage(v.Err) {
		return v, v.Err
	}
	return v, nil
}

// having returns the stores that have a snapshot.
func having(ctx context.Context, k snapshot.Key, stores []*storage.Store,
) (having []*storage.Store, err error) {
	for _, s := range stores {
		there, err := s.Has(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Backend().Location(), err)
		}
		if there {
			having = append(having, s)
		}
	}
	return having, nil
}

// isDamage reports whether an error is about the stored data, rather than a failure to read it. nil counts, too.
func isDamage(err error) bool {
	return err == nil || errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrTruncated)
}

// in adds the store's location to each part of an error.
func in(s *storage.Store, err error) error {
	var errs []error
	for _, p := range Parts(err) {
		errs = append(errs, fmt.Errorf("%s: %w", s.Backend().Location(), p))
	}
	return errors.Join(errs...)
}

// repair repairs a snapshot in each place from the others. It locks out replications and removals of the snapshot.
func (c *verifier) repair(ctx context.Context, k snapshot.Key, places []*storage.Store,
	progress func(done, total int64),
) (v Verified, err error) {
	release, err := c.stores.moving.Lock(ctx, k.String())
	if err != nil {
		return v, err
	}
	defer release()
	var lost []error
	for i, s := range places {
		others := append(append([]*storage.Store{}, places[:i]...), places[i+1:]...)
		r, err := storage.Repair(ctx, k, s, others, progress)
		for _, object := range r.Repaired {
			v.Repaired = append(v.Repaired, s.Backend().Location()+": "+object)
			c.log.Info("repaired", "snapshot", k.String(), "store", s.Backend().Location(), "object", object)
		}
		if err != nil {
			return v, err
		}
		for _, l := range r.Lost {
			lost = append(lost, in(s, l))
		}
		for _, hurt := range r.Hurt {
			v.AlsoHurt = append(v.AlsoHurt, hurt.String())
		}
		if s == c.stores.spool {
			c.noteRepair(ctx, k, r)
		}
		if m, err := s.Manifest(ctx, k); err == nil { // otherwise it is among what is lost
			v.Signatures = append(v.Signatures, signatureOf(s, m))
		}
	}
	gone, err := c.replications.missing(ctx, k)
	if err != nil {
		return v, err
	}
	for _, r := range gone {
		if err := c.replications.again(r.Record); err != nil {
			return v, err
		}
		v.Repaired = append(v.Repaired, r.store+": the snapshot, which is replicated again")
	}
	c.wake() // a replication may have failed for want of this repair
	v.Err = errors.Join(lost...)
	return v, nil
}

// noteRepair records the result of a repair in the spool: a snapshot that is whole again is restorable on this node.
func (c *verifier) noteRepair(ctx context.Context, k snapshot.Key, r storage.RepairResult) {
	var err error
	if len(r.Lost) == 0 {
		err = errors.Join(c.stores.spool.UnmarkDamaged(ctx, k), c.replications.resume(ctx, k))
	} else {
		err = c.damage.markUsers(ctx, k, fmt.Sprintf("snapshot %s is damaged on this node: %s: %s", k, r.Lost[0].Object,
			r.Lost[0].Reason), r.Lost)
	}
	if err != nil {
		c.log.Error("what a repair found is not recorded", "snapshot", k.String(), "error", err)
	}
}

// Parts returns the errors that were joined into err, one line each.
func Parts(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, Parts(e)...)
	}
	return all
}

// Permanent reports whether an error says that a snapshot is gone, damaged, or not to be trusted: to read it again
// cannot help.
func Permanent(err error) bool {
	return slices.ContainsFunc([]error{
		storage.ErrCorrupt, storage.ErrTruncated, storage.ErrNotFound, storage.ErrFormat, storage.ErrInvalidName,
		storage.ErrUntrusted,
	}, func(kind error) bool { return errors.Is(err, kind) })
}
