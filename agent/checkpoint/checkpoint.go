package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"diapause.dev/agent/checkpoint/room"
	"diapause.dev/agent/checkpoint/spool"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/capture"
)

// Checkpoints runs the checkpoints of this node. Its methods may be called concurrently.
type Checkpoints struct {
	Config
	log      *slog.Logger
	captures *captures
	control  *control
	settler  *settler
	budgets  room.Budgets
}

// New returns the Checkpoints of a node. No checkpoint is under way.
func New(c Config) *Checkpoints {
	control := &control{runtime: c.Runtime, sleeps: c.Sleeps, stoppedDir: c.StoppedDir, log: c.Logger}
	return &Checkpoints{
		Config: c, log: c.Logger, captures: &captures{expected: make(map[string]*expectedCapture)}, control: control,
		settler: &settler{
			control: control, runtime: c.Runtime, journal: c.Journal, unsettled: c.Unsettled, sandboxes: c.Sandboxes,
			replicator: c.Replicator, spool: c.Stores.Spool(), changed: c.Changed, log: c.Logger,
		},
		budgets: room.Budgets{Memory: c.Memory, Disk: c.Disk, Replication: c.Replication, Arena: c.Arena},
	}
}

// CleanMarkers removes the markers of sandboxes that containerd no longer knows.
func (cs *Checkpoints) CleanMarkers(ctx context.Context) { cs.control.cleanMarkers(ctx) }

// Checkpoint saves a sandbox as a snapshot. The request ends with ctx until the save starts. From then on it ends only
// with life, so that no pause is left unfinished.
func (cs *Checkpoints) Checkpoint(ctx, life context.Context, o Options) (*snapshots.Found, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	watch, started := newStopwatch(), time.Now()
	rec, err := cs.run(ctx, life, o, watch)
	cs.Metrics.Checkpoint(err, time.Since(started), watch.stages)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %.80q: %w", o.Target, err)
	}
	return cs.Catalog.FindAt(life, rec.Key, rec.Store)
}

// run is Checkpoint, measured by watch. It returns the request's record.
func (cs *Checkpoints) run(ctx, life context.Context, o Options, watch *stopwatch) (*journal.Record, error) {
	a := cs.acceptance(o, watch)
	release, err := a.accept(ctx)
	if err != nil {
		return nil, err
	}
	c := newCheckpoint(cs, a.accepted, watch)
	return c.rec, c.run(ctx, life, release)
}

// acceptance returns what accepts a request.
func (cs *Checkpoints) acceptance(o Options, watch *stopwatch) *acceptance {
	return &acceptance{
		runtime: cs.Runtime, control: cs.control, journal: cs.Journal, changed: cs.Changed, sandboxes: cs.Sandboxes,
		stores: cs.Stores, catalog: cs.Catalog, cluster: cs.Cluster, workloadSaves: cs.WorkloadSaves, watch: watch,
		accepted: accepted{o: o, log: cs.log},
	}
}

// checkpoint is one request under way whose turn has come.
type checkpoint struct {
	cs *Checkpoints
	accepted
	watch   *stopwatch
	entry   *entry
	room    *room.Room
	spool   *spool.Snapshot
	meta    snapshot.Meta
	running []string // ids of the containers that are recorded
	volumes podVolumes
	arena   *capture.Arena // nil: nothing was prepared
}

// newCheckpoint returns the checkpoint of a request that was accepted.
func newCheckpoint(cs *Checkpoints, a accepted, watch *stopwatch) *checkpoint {
	c := &checkpoint{cs: cs, accepted: a, watch: watch}
	c.entry = &entry{
		journal: cs.Journal, unsettled: cs.Unsettled, changed: cs.Changed, watch: watch, log: a.log, rec: a.rec,
	}
	c.room = room.New(cs.budgets, a.pod.Namespace, a.pod.String(), a.o.Scope)
	c.spool = spool.New(spool.Config{
		Stores: cs.Stores, Lineage: cs.Lineage, Room: c.room, Key: a.rec.Key, Store: a.rec.Store, Sandbox: a.pod.ID,
		Scope: a.o.Scope,
		Precopy: spool.Precopy{
			From: cs.PrecopyFrom, Time: cs.PrecopyTime, Pace: cs.Pace, Saving: a.o.sentry != nil, Stop: a.o.Stop,
			HandedOver: a.o.Handover != nil,
		},
		Progress: a.o.Progress, Lap: watch.lap, Logger: a.log,
	})
	return c
}

// run does what is left to do once the sandbox's turn has come. release ends that turn.
func (c *checkpoint) run(ctx, life context.Context, release func()) error {
	defer c.entry.cleanUp()
	err := c.save(ctx, life)
	if err != nil {
		err = c.fail(err)
	}
	c.spool.Abort()
	c.closeArena() // frees its memory, for the next checkpoint, before the wait for the store
	release()
	c.tellSpooled(life)
	if err != nil {
		return err
	}
	return c.replicated(life)
}

// save writes the snapshot to the spool and, if asked to, stops the sandbox.
func (c *checkpoint) save(ctx, life context.Context) error {
	if c.asleep {
		if saved, err := c.saveAsleep(ctx, life); saved || err != nil {
			return err
		}
	}
	if err := c.load(ctx); err != nil {
		return err
	}
	if err := c.confirmStop(ctx); err != nil {
		return err
	}
	if err := c.takeMemory(ctx); err != nil {
		return err
	}
	if err := c.prepare(ctx, life); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	switch {
	case c.o.Handover != nil:
		return c.saveAndHandOver(life)
	case c.o.Stop:
		return c.saveAndStop(life)
	}
	return c.saveRunning(life)
}

// fail journals why the request ended.
func (c *checkpoint) fail(err error) error {
	c.log.Error("checkpoint failed", "error", err)
	if c.rec.Stage == journal.StageSpooled {
		// The snapshot is in the spool and only the stop failed, so the snapshot is still replicated.
		if !c.entry.owing { // else a later attempt may stop the sandbox
			c.rec.RunsOn = err.Error()
			c.entry.noteOrOwe(journal.StageSpooled)
		}
		c.cs.Replicator.Wake()
		if c.o.Handover != nil {
			return fmt.Errorf("snapshot %s was made, but the pod does not sleep: %w", c.rec.Key, err)
		}
		return fmt.Errorf("snapshot %s was made, but the sandbox was not stopped: %w", c.rec.Key, err)
	}
	c.rec.Error = err.Error()
	if !c.entry.owing { // else the journal must keep the stage, which says what is still to be done
		c.entry.noteOrOwe(journal.StageFailed)
	}
	return err
}

// closeArena frees the captured memory and volumes, and gives back what the checkpoint holds of the node's budgets.
func (c *checkpoint) closeArena() {
	defer c.room.Leave()
	c.volumes.close()
	if c.arena == nil {
		return
	}
	if err := c.arena.Close(); err != nil {
		c.log.Warn("arena not closed", "error", err)
	}
}

// tellSpooled reports a spooled snapshot, even if stopping its sandbox failed.
func (c *checkpoint) tellSpooled(life context.Context) {
	if c.o.Spooled == nil || c.rec.Stage != journal.StageSpooled {
		return
	}
	f, err := c.cs.Catalog.Find(life, c.rec.Key)
	if err != nil {
		c.log.Warn("the spooled snapshot is not reported to the caller yet", "error", err)
		return
	}
	c.o.Spooled(f, c.rec.Warning)
}

// replicated replicates the snapshot to its store. With NoWait it only wakes the replicator.
func (c *checkpoint) replicated(life context.Context) error {
	if c.o.NoWait {
		c.cs.Replicator.Wake()
		return nil
	}
	err := c.cs.Replicator.Replicate(life, c.rec, func(done, total int64) { c.o.Progress("replicate", done, total) })
	if errors.Is(err, errkind.ErrNeverReplicated) {
		c.log.Error("a snapshot stays out of the store", "error", err)
		c.entry.owing = false
		return fmt.Errorf("snapshot %s: %w", c.rec.Key, err)
	}
	if err != nil {
		c.log.Warn("not replicated yet", "error", err)
		c.cs.Replicator.Wake()
		return fmt.Errorf("%w: snapshot %s is restorable on this node only; replication is retried until it succeeds: %w",
			errkind.ErrNotReplicated, c.rec.Key, err)
	}
	// Replicate has journaled the end of the request. If it could not, it has added the request to the unsettled ones
	// itself, with the newer record.
	c.entry.owing = false
	return nil
}
