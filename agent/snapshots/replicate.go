package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/keylock"
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

// Bell wakes a Replicator: there is something to replicate.
type Bell chan struct{}

// NewBell returns a bell that has not been rung.
func NewBell() Bell { return make(Bell, 1) }

// Ring wakes the replicator, now or when it comes to wait.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Replicator copies snapshots from the spool to their stores, and so ends requests. Its methods may be called
// concurrently.
type Replicator struct {
	stores    *Stores
	catalog   *Catalog
	journal   *journal.Journal
	unsettled *journal.Unsettled
	backlog   *Backlog
	sandboxes *keylock.Locks
	changed   func(*journal.Record)
	bell      Bell
	log       *slog.Logger
}

// NewReplicator returns a replicator. It waits for a sandbox's lock before it looks at what a request of the
// sandbox has left, and calls changed with each record that it changes in the journal.
func NewReplicator(c *Catalog, unsettled *journal.Unsettled, sandboxes *keylock.Locks, bell Bell,
) *Replicator {
	return &Replicator{
		stores: c.stores, catalog: c, journal: c.journal, unsettled: unsettled, backlog: c.backlog, sandboxes: sandboxes,
		changed: c.changed, bell: bell, log: c.log,
	}
}

// Wake has the replicator look for snapshots to replicate now.
func (p *Replicator) Wake() { p.bell.Ring() }

// Replicate uploads a snapshot from the spool to the store and ends its request. It may be called
// again after a failure, unless that is ErrNeverReplicated: then the request has ended too.
func (p *Replicator) Replicate(ctx context.Context, rec *journal.Record, progress func(done, total int64)) error {
	release, err := p.stores.moving.Lock(ctx, rec.Key.String())
	if err != nil {
		return err
	}
	defer release()
	if now := p.journal.Get(rec.ID); now != nil && now.Stage == journal.StageReplicated {
		rec.Stage, rec.Timeline = now.Stage, now.Timeline // somebody else was first
		return nil
	}
	started := time.Now()
	if err := p.copyToStore(ctx, rec, progress); err != nil {
		return err
	}
	rec.Timeline = append(rec.Timeline, snapshot.Stage{Name: "replicate", Took: time.Since(started)})
	rec.Stage = journal.StageReplicated
	p.backlog.ended(rec)
	err = p.journal.Put(rec)
	p.changed(rec)
	if err != nil {
		p.log.Error("the journal could not be written; it is tried again", "request", rec.ID, "error", err)
		p.unsettled.Add(rec)
	}
	return nil
}

// copyToStore copies a snapshot from the spool to its store. It tells the cluster why that fails, if that is news.
func (p *Replicator) copyToStore(ctx context.Context, rec *journal.Record, progress func(done, total int64)) error {
	dst, err := p.stores.Get(ctx, rec.Store)
	if err == nil {
		err = storage.Replicate(ctx, dst, p.stores.spool, rec.Key, progress)
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	if err = p.endIfHopeless(ctx, rec, err); !errors.Is(err, errkind.ErrNeverReplicated) {
		p.waits(rec, err)
	}
	return err
}

// waits notes why a snapshot is not in its store yet, and tells the cluster if that is news.
func (p *Replicator) waits(rec *journal.Record, err error) {
	if p.backlog.failed(rec, err) {
		p.changed(rec)
	}
}

// Run replicates what requests left in the spool, until ctx is done.
func (p *Replicator) Run(ctx context.Context) error {
	for pause, most := replicateFirst, replicateEvery; ; pause = min(2*pause, most) {
		if p.replicateAll(ctx) {
			pause = replicateEvery
		}
		if most = replicateEvery; p.backlog.denied() {
			most = replicateDenied
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		case <-p.bell:
			pause = replicateFirst / 2
		}
	}
}

// replicateAll replicates what is in the spool alone. It reports whether nothing is left. A store that denies access is
// asked once.
func (p *Replicator) replicateAll(ctx context.Context) (done bool) {
	done = true
	denied := make(map[string]error) // by location
	for _, r := range p.journal.Where(func(r *journal.Record) bool { return r.Stage == journal.StageSpooled }) {
		if ctx.Err() != nil {
			return false
		}
		if err := denied[r.Store]; err != nil {
			p.waits(r, err)
			continue
		}
		log := p.log.With("request", r.ID, "snapshot", r.Key.String())
		err := p.replicateLeft(ctx, r)
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
func (p *Replicator) replicateLeft(ctx context.Context, r *journal.Record) error {
	release, err := p.sandboxes.Lock(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	release()
	if p.unsettled.Has(r.ID) {
		return nil
	}
	now := p.journal.Get(r.ID)
	if now == nil || now.Stage != journal.StageSpooled {
		return nil
	}
	return p.Replicate(ctx, now, func(int64, int64) {})
}

// endIfHopeless ends a request whose replication failed with err, and would again each time, and tells the cluster. The
// error is then ErrNeverReplicated; otherwise it is err.
func (p *Replicator) endIfHopeless(ctx context.Context, rec *journal.Record, err error) error {
	why := p.catalog.hopeless(ctx, rec.Key, err)
	if why == "" {
		return err
	}
	rec.Stage, rec.Error = journal.StageFailed, why
	if err := p.journal.Put(rec); err != nil {
		p.log.Error("the journal could not be written; it is tried again", "request", rec.ID, "error", err)
		rec.Stage = journal.StageSpooled // the next attempt ends as this one did
		return err
	}
	p.backlog.ended(rec)
	p.changed(rec)
	return fmt.Errorf("%w: %w", errkind.ErrNeverReplicated, err)
}
