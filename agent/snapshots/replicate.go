package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/keylock"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// A failed replication is retried after replicateFirst. The pause then doubles, up to replicateEvery, or up to
// replicateDenied if the stores deny access to everything that waits.
const (
	replicateFirst  = time.Second
	replicateEvery  = 15 * time.Second
	replicateDenied = 2 * time.Minute
)

// Bell wakes a Replicator when there is something to replicate.
type Bell chan struct{}

// NewBell returns a bell that has not been rung.
func NewBell() Bell { return make(Bell, 1) }

// Ring wakes the replicator. If it is busy, its next wait ends at once.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Replicator copies snapshots from the spool to their stores, which ends their requests. Its methods may be called
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

// NewReplicator returns a replicator. Before it looks at a request, it waits for the lock of the request's sandbox.
// Like the catalog, it reports each record that it changes in the journal.
func NewReplicator(c *Catalog, unsettled *journal.Unsettled, sandboxes *keylock.Locks, bell Bell,
) *Replicator {
	return &Replicator{
		stores: c.stores, catalog: c, journal: c.journal, unsettled: unsettled, backlog: c.backlog, sandboxes: sandboxes,
		changed: c.changed, bell: bell, log: c.log,
	}
}

// Wake makes the replicator look for snapshots to replicate now.
func (p *Replicator) Wake() { p.bell.Ring() }

// Replicate uploads a snapshot from the spool to its store and ends its request. After a failure it may be called
// again, except after ErrNeverReplicated: then the request has ended, too.
func (p *Replicator) Replicate(ctx context.Context, rec *journal.Record, progress func(done, total int64)) error {
	release, err := p.stores.moving.Lock(ctx, rec.Key.String())
	if err != nil {
		return err
	}
	defer release()
	if now := p.journal.Get(rec.ID); now != nil && now.Stage == journal.StageReplicated {
		rec.Stage, rec.Timeline = now.Stage, now.Timeline // another call has replicated it
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

// copyToStore copies a snapshot from the spool to its store. If that fails for a new reason, it tells the cluster.
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

// Run replicates every snapshot that is in the spool alone, until ctx is done.
func (p *Replicator) Run(ctx context.Context) error {
	b := &backoff.ExponentialBackOff{InitialInterval: replicateFirst, Multiplier: 2, RandomizationFactor: 0.25}
	for {
		pause := replicateEvery
		if p.replicateAll(ctx) {
			b.Reset()
		} else {
			b.MaxInterval = replicateEvery
			if p.backlog.denied() {
				b.MaxInterval = replicateDenied
			}
			pause = b.NextBackOff()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		case <-p.bell:
			b.Reset()
		}
	}
}

// replicateAll tries every snapshot that is in the spool alone. It reports whether nothing is left to retry. It asks a
// store that denies access only once.
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

// replicateLeft replicates a snapshot after its own request's checkpoint is over. It does nothing if the request still
// has other work to finish: then the request does not end with the replication.
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

// endIfHopeless ends a request whose replication failed with err, if every retry must fail, and tells the cluster. It
// then returns ErrNeverReplicated; otherwise it returns err.
func (p *Replicator) endIfHopeless(ctx context.Context, rec *journal.Record, err error) error {
	why := p.catalog.hopeless(ctx, rec.Key, err)
	if why == "" {
		return err
	}
	rec.Stage, rec.Error = journal.StageFailed, why
	if err := p.journal.Put(rec); err != nil {
		p.log.Error("the journal could not be written; it is tried again", "request", rec.ID, "error", err)
		rec.Stage = journal.StageSpooled // the next attempt comes here again
		return err
	}
	p.backlog.ended(rec)
	p.changed(rec)
	return fmt.Errorf("%w: %w", errkind.ErrNeverReplicated, err)
}
