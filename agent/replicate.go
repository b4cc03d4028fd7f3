package agent

import (
	"context"
	"errors"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// What could not be replicated is tried again after replicateFirst, then after twice as long and so
// on, up to replicateEvery.
const (
	replicateFirst = time.Second
	replicateEvery = 15 * time.Second
)

// replicate uploads a snapshot from the spool to the store and ends its request. It may be called
// again after a failure.
func (a *Agent) replicate(ctx context.Context, rec *record, progress func(done, total int64)) error {
	release, err := a.moving.take(ctx, rec.Key.String())
	if err != nil {
		return err
	}
	defer release()
	if now, err := readRecord(a.journal.path(rec.ID)); err == nil && now.Stage == StageReplicated {
		rec.Stage, rec.Timeline = now.Stage, now.Timeline // somebody else was first
		return nil
	}
	dst, err := a.stores.get(ctx, rec.Store)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := storage.Replicate(ctx, dst, a.spool, rec.Key, progress); err != nil {
		return err
	}
	rec.Timeline = append(rec.Timeline, snapshot.Stage{Name: "replicate", Took: time.Since(started)})
	rec.Stage = StageReplicated
	if err := a.journal.put(rec); err != nil {
		a.log.Error("the journal could not be written; it is tried again", "request", rec.ID, "error", err)
		a.debts.add(rec)
	}
	a.changed(rec)
	return nil
}

func (a *Agent) wakeReplicator() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// replicateLoop replicates what requests left in the spool, until ctx is done.
func (a *Agent) replicateLoop(ctx context.Context) error {
	for pause := replicateFirst; ; pause = min(2*pause, replicateEvery) {
		if a.replicateAll(ctx) {
			pause = replicateEvery
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		case <-a.wake:
			pause = replicateFirst / 2
		}
	}
}

// replicateAll replicates what is in the spool alone. It reports whether nothing is left.
func (a *Agent) replicateAll(ctx context.Context) (done bool) {
	recs, err := a.journal.records(a.log)
	if err != nil {
		a.log.Error("journal unreadable", "error", err)
		return false
	}
	done = true
	for _, r := range recs {
		if r.Stage != StageSpooled || ctx.Err() != nil {
			continue
		}
		log := a.log.With("request", r.ID, "snapshot", r.Key.String())
		err := a.replicateLeft(ctx, r)
		switch {
		case err == nil:
			log.Info("replicated")
		case errors.Is(err, storage.ErrNotFound) && a.gone(ctx, r.Key):
			r.Stage, r.Error = StageFailed, "removed from the spool before it was replicated"
			if err := a.journal.put(r); err != nil {
				log.Error("journal", "error", err)
			}
		case errors.Is(err, storage.ErrExists):
			r.Stage, r.Error = StageFailed, err.Error()
			log.Error("another snapshot has this name in the store; this one stays on this node", "error", err)
			if err := a.journal.put(r); err != nil {
				log.Error("journal", "error", err)
			}
		default:
			done = false
			log.Warn("not replicated yet", "error", err)
		}
	}
	return done
}

// gone reports whether a snapshot is surely not in the spool any more.
func (a *Agent) gone(ctx context.Context, k snapshot.Key) bool {
	ok, err := a.spool.Has(ctx, k)
	return err == nil && !ok
}

// replicateLeft replicates a snapshot unless its own request is still about to, or owes more than
// that: then the end of the replication is not that of the request.
func (a *Agent) replicateLeft(ctx context.Context, r *record) error {
	release, err := a.turns.take(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	release()
	if a.debts.has(r.ID) {
		return nil
	}
	now, err := readRecord(a.journal.path(r.ID))
	if err != nil || now.Stage != StageSpooled {
		return err
	}
	return a.replicate(ctx, now, func(int64, int64) {})
}
