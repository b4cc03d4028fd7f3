package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"diapause.dev/agent/backlog"
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
	damage    *spoolDamage
	journal   *journal.Journal
	unsettled *journal.Unsettled
	backlog   *backlog.Backlog
	sandboxes *keylock.Locks
	changed   func(*journal.Record)
	bell      Bell
	log       *slog.Logger
}

// NewReplicator returns a replicator. It leaves requests alone while the locks of their sandboxes are held. Like the
// catalog, it reports each record that it changes in the journal.
func NewReplicator(c *Catalog, unsettled *journal.Unsettled, sandboxes *keylock.Locks, bell Bell,
) *Replicator {
	return &Replicator{
		stores: c.stores, damage: c.damage, journal: c.journal, unsettled: unsettled, backlog: c.backlog,
		sandboxes: sandboxes, changed: c.changed, bell: bell, log: c.stores.log,
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
	switch now := p.journal.Get(rec.ID); {
	case now == nil:
	case now.Stage == journal.StageReplicated:
		rec.Stage, rec.Timeline = now.Stage, now.Timeline // another call has replicated it
		return nil
	case now.Stage == journal.StageFailed: // it was detached
		rec.Stage, rec.Error = now.Stage, now.Error
		return fmt.Errorf("%w: %s", errkind.ErrNeverReplicated, now.Error)
	}
	started := time.Now()
	if err := p.copyToStore(ctx, rec, progress); err != nil {
		return err
	}
	rec.Timeline = append(rec.Timeline, snapshot.Stage{Name: "replicate", Took: time.Since(started)})
	rec.Stage = journal.StageReplicated
	p.backlog.Ended(rec)
	err = p.journal.Put(rec)
	p.changed(rec)
	if err != nil {
		p.log.Error("the journal could not be written; it is retried", "request", rec.ID, "error", err)
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
	if p.backlog.Failed(rec, err) {
		p.changed(rec)
	}
}

// Run replicates every snapshot that is in the spool alone, until ctx is done. When it returns, nothing is under way.
func (p *Replicator) Run(ctx context.Context) error {
	b := &backoff.ExponentialBackOff{InitialInterval: replicateFirst, Multiplier: 2, RandomizationFactor: 0.25}
	q, ended := queue{busy: make(map[lane]bool)}, make(chan outcome)
	failed, next := false, time.NewTimer(0)
	defer next.Stop()
	for {
		for l, ok := q.take(); ok; l, ok = q.take() {
			go func() { ended <- outcome{l, p.replicateLane(ctx, l)} }()
		}
		select {
		case <-ctx.Done():
			for range q.busy {
				<-ended
			}
			return nil
		case o := <-ended:
			q.end(o)
			if !o.done && !failed {
				failed = true
				next.Reset(p.pause(b))
			}
			continue
		case <-next.C:
			if !failed {
				b.Reset()
			}
		case <-p.bell:
			b.Reset()
		}
		q.add(p.lanes())
		failed = false
		next.Reset(replicateEvery)
	}
}

// pause returns the pause after a failure.
func (p *Replicator) pause(b *backoff.ExponentialBackOff) time.Duration {
	b.MaxInterval = replicateEvery
	if p.backlog.Denied() {
		b.MaxInterval = replicateDenied
	}
	return b.NextBackOff()
}

// lane is a namespace's place in a store. The snapshots of a lane are replicated one after the other, those of several
// lanes at a time. So neither a slow store nor what somebody puts into that place, such as notices of sweeps, keeps
// others waiting.
type lane struct{ store, namespace string }

// outcome is the end of an attempt to replicate all of a lane. done means that nothing is left to retry.
type outcome struct {
	lane lane
	done bool
}

// How many lanes are worked on at a time, in all and of one store. Each may need the memory of one replication.
const (
	maxLanes      = 16
	maxStoreLanes = 4
)

// queue holds the lanes that are due, those that have waited longest first, and those that are worked on.
type queue struct {
	due  []lane
	busy map[lane]bool
}

// add adds the lanes that are not due yet. One that is busy is worked on again later: there may be more in it.
func (q *queue) add(lanes []lane) {
	for _, l := range lanes {
		if !slices.Contains(q.due, l) {
			q.due = append(q.due, l)
		}
	}
}

// take takes a lane that can be worked on now, and makes it busy.
func (q *queue) take() (l lane, ok bool) {
	stores := make(map[string]int)
	for l := range q.busy {
		stores[l.store]++
	}
	i := slices.IndexFunc(q.due, func(l lane) bool { return !q.busy[l] && stores[l.store] < maxStoreLanes })
	if i < 0 || len(q.busy) == maxLanes {
		return lane{}, false
	}
	l = q.due[i]
	q.due, q.busy[l] = slices.Delete(q.due, i, i+1), true
	return l, true
}

// end notes the end of an attempt. After a failure the lane is due again only with the next round.
func (q *queue) end(o outcome) {
	delete(q.busy, o.lane)
	if !o.done {
		q.due = slices.DeleteFunc(q.due, func(l lane) bool { return l == o.lane })
	}
}

// lanes returns the lanes that have a snapshot which is in the spool alone, that with the oldest first.
func (p *Replicator) lanes() (lanes []lane) {
	for _, r := range p.journal.Where(func(r *journal.Record) bool { return r.Stage == journal.StageSpooled }) {
		if l := laneOf(r); !slices.Contains(lanes, l) {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

func laneOf(r *journal.Record) lane { return lane{r.Store, r.Key.Namespace} }

// replicateLane tries every snapshot of a lane that is in the spool alone, each on its own: what keeps one out of the
// store need not keep the others. It reports whether nothing is left to retry.
func (p *Replicator) replicateLane(ctx context.Context, l lane) (done bool) {
	done = true
	for _, r := range p.journal.Where(func(r *journal.Record) bool {
		return r.Stage == journal.StageSpooled && laneOf(r) == l
	}) {
		if ctx.Err() != nil {
			return false
		}
		log := p.log.With("request", r.ID, "snapshot", r.Key.String())
		err := p.replicateLeft(ctx, r)
		switch {
		case err == nil:
			log.Info("replicated")
		case errors.Is(err, errkind.ErrNeverReplicated):
			log.Error("a snapshot stays out of the store", "error", err)
		case errors.Is(err, errBusy):
			done = false
		default:
			done = false
			log.Warn("not replicated yet", "error", err)
		}
	}
	return done
}

// errBusy means that a checkpoint of the snapshot's sandbox is under way, perhaps its own.
var errBusy = errors.New("the sandbox is being checkpointed")

// replicateLeft replicates a snapshot after its own request's checkpoint is over. It does nothing if the request still
// has other work to finish: then the request does not end with the replication.
func (p *Replicator) replicateLeft(ctx context.Context, r *journal.Record) error {
	if p.sandboxes.Locked(r.SandboxID) {
		return errBusy
	}
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
	why := p.damage.hopeless(ctx, rec.Key, err)
	if why == "" {
		return err
	}
	rec.Stage, rec.Error = journal.StageFailed, why
	if err := p.journal.Put(rec); err != nil {
		p.log.Error("the journal could not be written; it is retried", "request", rec.ID, "error", err)
		rec.Stage = journal.StageSpooled // the next attempt comes here again
		return err
	}
	p.backlog.Ended(rec)
	p.changed(rec)
	return fmt.Errorf("%w: %w", errkind.ErrNeverReplicated, err)
}
