package agent

import (
	"context"
	"errors"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// replicateEvery is how often what could not be replicated is tried again.
const replicateEvery = 15 * time.Second

// replicate uploads a snapshot from the spool to the store and ends its request. It may be called
// again after a failure.
func (a *Agent) replicate(ctx context.Context, rec *record, progress func(done, total int64)) error {
	release, err := a.moving.take(ctx, rec.Key.String())
	if err != nil {
		return err
	}
	defer release()
	dst, err := a.store.get(ctx)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := storage.Replicate(ctx, dst, a.spool, rec.Key, progress); err != nil {
		return err
	}
	rec.Timeline = append(rec.Timeline, snapshot.Stage{Name: "replicate", Took: time.Since(started)})
	rec.Stage = StageReplicated
	return a.journal.put(rec)
}

func (a *Agent) wakeReplicator() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// replicateLoop replicates what requests left in the spool, until ctx is done.
func (a *Agent) replicateLoop(ctx context.Context) error {
	tick := time.NewTicker(replicateEvery)
	defer tick.Stop()
	for {
		a.replicateAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-a.wake:
		}
	}
}

func (a *Agent) replicateAll(ctx context.Context) {
	recs, err := a.journal.records(a.log)
	if err != nil {
		a.log.Error("journal unreadable", "error", err)
		return
	}
	for _, r := range recs {
		if r.Stage != StageSpooled || ctx.Err() != nil {
			continue
		}
		log := a.log.With("request", r.ID, "snapshot", r.Key.String())
		err := a.replicateLeft(ctx, r)
		switch {
		case err == nil:
			log.Info("replicated")
		case errors.Is(err, storage.ErrNotFound):
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
			log.Warn("not replicated yet", "error", err)
		}
	}
}

// replicateLeft replicates a snapshot unless its own request is still about to.
func (a *Agent) replicateLeft(ctx context.Context, r *record) error {
	release, err := a.turns.take(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	release()
	now, err := readRecord(a.journal.path(r.ID))
	if err != nil || now.Stage != StageSpooled {
		return err
	}
	return a.replicate(ctx, now, func(int64, int64) {})
}
