package agent

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// verified is what was found of a snapshot.
type verified struct {
	err      error    // names every damaged object; nil: it is whole
	repaired []string // objects, each after the place that it is in
	alsoHurt []string // other snapshots that need something damaged that could not be repaired
}

// verify checks one snapshot wherever it is, and, if asked to, repairs it. An error kept it from looking.
func (a *Agent) verify(ctx context.Context, k snapshot.Key, o storage.VerifyOptions,
	repair bool,
) (v verified, err error) {
	if err := k.Validate(); err != nil {
		return v, fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	far, err := a.openStores(ctx)
	if err != nil {
		return v, err
	}
	places, err := a.having(ctx, k, append([]*storage.Store{a.spool}, far...))
	if err != nil {
		return v, err
	}
	if len(places) == 0 {
		return v, notOnNode(k, nil)
	}
	if repair {
		return a.repair(ctx, k, places, o.Progress)
	}
	var errs []error
	for _, s := range places {
		m, err := s.Manifest(ctx, k)
		if err == nil {
			err = s.Verify(ctx, m, o)
		}
		if err != nil && removedMeanwhile(ctx, s, k) {
			continue
		}
		errs = append(errs, in(s, err))
	}
	v.err = errors.Join(errs...)
	if !damage(v.err) {
		return v, v.err
	}
	return v, nil
}

// having returns those of the stores that have a snapshot.
func (a *Agent) having(ctx context.Context, k snapshot.Key,
	stores []*storage.Store,
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

// damage reports whether an error is of what is stored, and not of looking at it.
func damage(err error) bool {
	return err == nil || errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrTruncated)
}

// in says of each part of an error where it was.
func in(s *storage.Store, err error) error {
	var errs []error
	for _, p := range parts(err) {
		errs = append(errs, fmt.Errorf("%s: %w", s.Backend().Location(), p))
	}
	return errors.Join(errs...)
}

// repair repairs a snapshot in each place from the others. No replication or removal of it is under way meanwhile.
func (a *Agent) repair(ctx context.Context, k snapshot.Key, places []*storage.Store,
	progress func(done, total int64),
) (v verified, err error) {
	release, err := a.moving.Lock(ctx, k.String())
	if err != nil {
		return v, err
	}
	defer release()
	var lost []error
	for i, s := range places {
		others := append(append([]*storage.Store{}, places[:i]...), places[i+1:]...)
		r, err := storage.Repair(ctx, k, s, others, progress)
		for _, object := range r.Repaired {
			v.repaired = append(v.repaired, s.Backend().Location()+": "+object)
			a.log.Info("repaired", "snapshot", k.String(), "store", s.Backend().Location(), "object", object)
		}
		if err != nil {
			return v, err
		}
		for _, l := range r.Lost {
			lost = append(lost, in(s, l))
		}
		for _, hurt := range r.Hurt {
			v.alsoHurt = append(v.alsoHurt, hurt.String())
		}
		if s == a.spool {
			a.record(ctx, k, r)
		}
	}
	a.wakeReplicator() // which may have waited for this
	v.err = errors.Join(lost...)
	return v, nil
}

// record notes in the spool what a repair has found: a snapshot that is whole again is restorable here.
func (a *Agent) record(ctx context.Context, k snapshot.Key, r storage.RepairResult) {
	var err error
	if len(r.Lost) == 0 {
		err = errors.Join(a.spool.UnmarkDamaged(ctx, k), a.resumeReplication(ctx, k))
	} else {
		err = a.markUsers(ctx, k, fmt.Sprintf("snapshot %s is damaged on this node: %s: %s", k, r.Lost[0].Object,
			r.Lost[0].Reason), r.Lost)
	}
	if err != nil {
		a.log.Error("what a repair found is not recorded", "snapshot", k.String(), "error", err)
	}
}

// resumeReplication has a snapshot of the spool replicated that was given up: what made that hopeless may be over.
func (a *Agent) resumeReplication(ctx context.Context, k snapshot.Key) error {
	m, err := a.spool.Manifest(ctx, k)
	if err != nil {
		return err
	}
	for _, r := range a.journal.Where(func(r *journal.Record) bool {
		return r.UID == m.Meta.UID && r.Key == k &&
			r.Stage == journal.StageFailed
	}) {
		r.Stage, r.Error = journal.StageSpooled, ""
		if err := a.journal.Put(r); err != nil {
			return err
		}
		a.changed(r)
	}
	return nil
}
