package agent

import (
	"context"
	"errors"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// What could not be replicated is tried again after replicateFirst, then after twice as long and so
// on, up to replicateEvery, or to replicateDenied where the store denies access to all of it.
const (
	replicateFirst  = time.Second
	replicateEvery  = 15 * time.Second
	replicateDenied = 2 * time.Minute
)

// replicate uploads a snapshot from the spool to the store and ends its request. It may be called
// again after a failure, unless that is ErrNeverReplicated: then the request has ended too.
func (a *Agent) replicate(ctx context.Context, rec *journal.Record, progress func(done, total int64)) error {
	release, err := a.moving.Lock(ctx, rec.Key.String())
	if err != nil {
		return err
	}
	defer release()
	if now := a.journal.Get(rec.ID); now != nil && now.Stage == journal.StageReplicated {
		rec.Stage, rec.Timeline = now.Stage, now.Timeline // somebody else was first
		return nil
	}
	started := time.Now()
	if err := a.copyToStore(ctx, rec, progress); err != nil {
		return err
	}
	rec.Timeline = append(rec.Timeline, snapshot.Stage{Name: "replicate", Took: time.Since(started)})
	rec.Stage = journal.StageReplicated
	a.lagging.ended(rec)
	err = a.journal.Put(rec)
	a.changed(rec)
	if err != nil {
		a.log.Error("the journal could not be written; it is tried again", "request", rec.ID, "error", err)
		a.unsettled.Add(rec)
	}
	return nil
}

// copyToStore copies a snapshot from the spool to its store. It tells the cluster why that fails, if that is news.
func (a *Agent) copyToStore(ctx context.Context, rec *journal.Record, progress func(done, total int64)) error {
	dst, err := a.stores.get(ctx, rec.Store)
	if err == nil {
		err = storage.Replicate(ctx, dst, a.spool, rec.Key, progress)
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	if err = a.endIfHopeless(ctx, rec, err); !errors.Is(err, errkind.ErrNeverReplicated) {
		a.waits(rec, err)
	}
	return err
}

// waits notes why a snapshot is not in its store yet, and tells the cluster if that is news.
func (a *Agent) waits(rec *journal.Record, err error) {
	if a.lagging.failed(rec, err) {
		a.changed(rec)
	}
}

func (a *Agent) wakeReplicator() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// replicateLoop replicates what requests left in the spool, until ctx is done.
func (a *Agent) replicateLoop(ctx context.Context) error {
	for pause, most := replicateFirst, replicateEvery; ; pause = min(2*pause, most) {
		if a.replicateAll(ctx) {
			pause = replicateEvery
		}
		if most = replicateEvery; a.lagging.denied() {
			most = replicateDenied
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

// replicateAll replicates what is in the spool alone. It reports whether nothing is left. A store that denies access is
// asked once.
func (a *Agent) replicateAll(ctx context.Context) (done bool) {
	done = true
	denied := make(map[string]error) // by location
	for _, r := range a.journal.Where(func(r *journal.Record) bool { return r.Stage == journal.StageSpooled }) {
		if ctx.Err() != nil {
			return false
		}
		if err := denied[r.Store]; err != nil {
			a.waits(r, err)
			continue
		}
		log := a.log.With("request", r.ID, "snapshot", r.Key.String())
		err := a.replicateLeft(ctx, r)
		switch {
		case err == nil:
			log.Info("replicated")
		case errors.Is(err, errkind.ErrNeverReplicated):
			log.Error("a snapshot stays out of the store", "error", err)
		default:
			done = false
			log.Warn("not replicated yet", "error", err)
		}
		if errors.Is(err, storage.ErrDenied) {
			denied[r.Store] = err
		}
	}
	return done
}

// replicateLeft replicates a snapshot unless its own request is still about to, or owes more than
// that: then the end of the replication is not that of the request.
func (a *Agent) replicateLeft(ctx context.Context, r *journal.Record) error {
	release, err := a.turns.Lock(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	release()
	if a.unsettled.Has(r.ID) {
		return nil
	}
	now := a.journal.Get(r.ID)
	if now == nil || now.Stage != journal.StageSpooled {
		return nil
	}
	return a.replicate(ctx, now, func(int64, int64) {})
}
