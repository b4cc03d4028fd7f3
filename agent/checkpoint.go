package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
	"diapause.dev/storage"
)

// CheckpointOptions say what to checkpoint and what to do with the sandbox afterwards.
type CheckpointOptions struct {
	Target string // as cri.Client.Find takes it
	Name   string // of the snapshot; empty: one is made
	Stop   bool   // stop the sandbox once the snapshot is safe on this node
	// Scope is how much of the pod is kept. A whole pod is the default, unless the cluster asks for less.
	Scope snapshot.Scope
	// Completed has the containers of a sandbox that is stopped report exit status 0, rather than
	// that of a process ended by SIGKILL.
	Completed bool
	// NoWait returns once the snapshot is restorable on this node.
	NoWait bool
	// Progress, if set, is told how far a stage is, in bytes of raw image; total is 0 while
	// unknown. It is called from several goroutines.
	Progress func(stage string, done, total int64)
	// sentry, if set, has begun the save by itself.
	sentry *sentry
	// Accepted and Spooled, if set, are called once each when the request has come that far.
	Accepted func(request string)
	Spooled  func(*Found)
}

// checkpoint is a request on its way.
type checkpoint struct {
	*Agent
	o           CheckpointOptions
	log         *slog.Logger
	rec         *record
	pod         *cri.Pod
	description Description // what the cluster says of the pod
	watch       *stopwatch
	meta        snapshot.Meta
	running     []string // ids of the containers that are recorded
	arena       *capture.Arena
	capture     *capture.Capture
	volumes     []onNode // that lie on the node, by name
	owing       bool     // the journal, or the sandbox, is not as the request's end asks for
}

// slack is how many bytes beyond the memory in use an arena is warmed for: what the sandbox
// allocates until it is paused, and its file systems' own memory.
const slack = 16 << 20

// Checkpoint saves a sandbox as a snapshot. Until the sandbox is being saved the request ends with
// ctx; from then on it is seen through as long as life lasts, so that no pause is left half-way.
func (a *Agent) Checkpoint(ctx, life context.Context, o CheckpointOptions) (*Found, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	c := &checkpoint{Agent: a, o: o, watch: newStopwatch()}
	started := time.Now()
	err := c.run(ctx, life)
	a.metrics.checkpoint(err, time.Since(started), c.watch.stages)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %.80q: %w", o.Target, err)
	}
	return a.findAt(life, c.rec.Key, c.rec.Store)
}

func (c *checkpoint) run(ctx, life context.Context) error {
	release, err := c.accept(ctx)
	if err != nil {
		return err
	}
	defer c.cleanUp()
	err = c.save(ctx, life)
	if err != nil {
		err = c.fail(err)
	}
	c.closeArena() // neither its memory nor the next checkpoint is to wait for the store
	release()
	c.tellSpooled(life)
	if err != nil {
		return err
	}
	return c.replicated(life)
}

// accept resolves the target, waits for the sandbox's turn, and journals the request.
func (c *checkpoint) accept(ctx context.Context) (release func(), err error) {
	pod, err := c.cri.Find(ctx, c.o.Target)
	if err != nil {
		return nil, err
	}
	if err := pod.CheckRuntime(); err != nil {
		return nil, err
	}
	c.rec = &record{
		ID: newID(8), UID: newID(16), Pod: pod.String(), SandboxID: pod.ID, Stop: c.o.Stop,
		Stage: StageAccepted, Created: time.Now(),
		PodUID: pod.UID, Key: snapshot.Key{Namespace: pod.Namespace, Name: c.o.Name},
		Completed: c.o.Completed, Scope: c.o.Scope,
	}
	if c.rec.Key.Name == "" {
		c.rec.Key.Name = snapshotName(pod.Name, c.rec.Created)
	}
	if err := c.rec.Key.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c.log = c.Agent.log.With("request", c.rec.ID, "pod", c.rec.Pod, "snapshot", c.rec.Key.String())
	if c.o.Accepted != nil {
		c.o.Accepted(c.rec.ID)
	}
	if release, err = c.turn(ctx); err != nil {
		return nil, err
	}
	if err = c.ready(ctx); err == nil {
		c.watch.lap("queue")
		err = c.journal.put(c.rec)
		c.changed(c.rec)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// turn waits for the sandbox's turn. A sandbox that has begun a save by itself is not kept waiting.
func (c *checkpoint) turn(ctx context.Context) (release func(), err error) {
	c.o.Progress("queue", 0, 0)
	if c.o.sentry == nil {
		return c.turns.take(ctx, c.rec.SandboxID)
	}
	if release = c.turns.try(c.rec.SandboxID); release == nil {
		return nil, fmt.Errorf("pod %s: %w: it is being checkpointed", c.rec.Pod, ErrInvalid)
	}
	return release, nil
}

// ready looks at the pod again now that its turn has come.
func (c *checkpoint) ready(ctx context.Context) (err error) {
	if c.pod, err = c.cri.Get(ctx, c.rec.SandboxID); err != nil {
		return err
	}
	if !c.pod.Ready || c.pod.SandboxPID == 0 {
		return fmt.Errorf("pod %s: %w", c.pod, cri.ErrNotRunning)
	}
	if err := c.describe(ctx); err != nil {
		return err
	}
	taken, err := c.exists(ctx, c.rec.Key, c.rec.Store)
	if err == nil && taken {
		err = fmt.Errorf("snapshot %s: %w: choose another name or remove it first", c.rec.Key, storage.ErrExists)
	}
	return err
}

// describe asks the cluster what it knows of the pod.
func (c *checkpoint) describe(ctx context.Context) error {
	if c.cluster == nil {
		return nil
	}
	d, err := c.cluster.Describe(ctx, PodRef{Namespace: c.pod.Namespace, Name: c.pod.Name, UID: c.pod.UID})
	if err != nil {
		return fmt.Errorf("pod %s: %w", c.pod, err)
	}
	if _, err := c.stores.at(d.Store); err != nil {
		return err
	}
	c.description, c.rec.Store = d, d.Store
	if c.o.Scope != snapshot.WholePod {
		return nil
	}
	if c.o.sentry != nil && d.Scope != snapshot.WholePod {
		return fmt.Errorf("pod %s: %w: it has itself saved as a whole, and its snapshots are to be %s", c.pod, ErrInvalid, d.Scope)
	}
	c.o.Scope, c.rec.Scope = d.Scope, d.Scope
	return nil
}

// lookTime bounds how long a request waits for the store to say whether it has a snapshot.
const lookTime = 5 * time.Second

// exists reports whether a snapshot of this key is in the spool or, if it can be reached, in the
// store.
func (a *Agent) exists(ctx context.Context, k snapshot.Key, location string) (bool, error) {
	if ok, err := a.spool.Has(ctx, k); ok || err != nil {
		return ok, err
	}
	s, err := a.stores.get(ctx, location)
	if err != nil {
		return false, nil // it is refused when it comes to replication
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	ok, err := s.Has(ctx, k)
	return ok && err == nil, nil
}

// save takes the snapshot into the spool and carries out the after-mode.
func (c *checkpoint) save(ctx, life context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if !c.o.Stop {
		return c.saveRunning(life)
	}
	return c.saveAndStop(life)
}

// prepare does everything that can be done before the pause.
func (c *checkpoint) prepare(ctx context.Context) (err error) {
	facts, err := c.node.of(ctx, c.pod.SandboxPID)
	if err != nil {
		return err
	}
	if c.running, err = c.cri.Running(ctx, c.pod.ID); err != nil {
		return err
	}
	rec, err := c.cri.Record(ctx, c.pod.ID)
	if err != nil {
		return err
	}
	c.meta = snapshot.Meta{
		Key: c.rec.Key, UID: c.rec.UID, Scope: c.o.Scope, Facts: facts, Pod: rec,
		Origin: snapshot.Origin{
			Pod: c.pod.Name, PodUID: c.pod.UID, SandboxID: c.pod.ID, Node: c.cfg.Node,
			ServiceAccount: c.description.ServiceAccount, Group: c.description.Group, SpecHash: c.description.SpecHash,
			Cluster: c.description.Cluster,
		},
	}
	if err := c.findVolumes(); err != nil {
		return err
	}
	if err := c.warmVolumes(ctx); err != nil {
		return err
	}
	if err := c.warm(); err != nil {
		return err
	}
	c.watch.lap("prepare")
	return nil
}

// warm makes the arena, and the sandbox's memory as far as it is allocated now, ready to be copied
// without a page fault. Files lie elsewhere: how much of them there is, the sentry alone knows.
func (c *checkpoint) warm() (err error) {
	if c.o.Scope == snapshot.RootfsOnly {
		c.arena, err = capture.NewArena(slack, c.cfg.Arena, c.spoolDir(), c.cfg.Keys != "", nil)
		return err
	}
	path, err := runsc.MemoryFile(c.pod.SandboxPID)
	if err != nil {
		return err
	}
	used, err := runsc.MemoryUsage(c.pod.SandboxPID)
	if err != nil {
		return err
	}
	c.o.Progress("prepare", 0, used)
	mapping, err := capture.Map(path)
	if err != nil {
		return err
	}
	c.arena, err = capture.NewArena(used+slack, c.cfg.Arena, c.spoolDir(), c.cfg.Keys != "", mapping)
	return err
}

func (c *checkpoint) saveRunning(life context.Context) error {
	im, err := c.take(life)
	if err != nil {
		return err
	}
	if err := c.toSpool(life, im); err != nil {
		return err
	}
	if c.o.sentry == nil || !c.description.Stop {
		return nil
	}
	// The sentry has let the sandbox run on by itself; what it has done since is given up.
	c.rec.Completed = true
	if err := c.Agent.stop(c.pod, c.rec, c.watch); err != nil {
		return err
	}
	c.note(StageSpooled)
	return nil
}

// advance journals a stage.
func (c *checkpoint) advance(s Stage) error {
	c.rec.Stage, c.rec.Timeline = s, c.watch.stages
	err := c.journal.put(c.rec)
	c.changed(c.rec)
	return err
}

// note journals how far the request has come where it goes on all the same: what the journal lacks
// is made good later.
func (c *checkpoint) note(s Stage) {
	err := c.advance(s)
	c.owing = err != nil
	if err != nil {
		c.log.Error("the journal could not be written; it is tried again", "error", err)
	}
}

// fail journals why the request ended.
func (c *checkpoint) fail(err error) error {
	c.log.Error("checkpoint failed", "error", err)
	if c.rec.Stage == StageSpooled {
		// The snapshot is safe, only the sandbox was not stopped: it is replicated all the same.
		c.wakeReplicator()
		return fmt.Errorf("snapshot %s was made, but the sandbox was not stopped: %w", c.rec.Key, err)
	}
	c.rec.Error = err.Error()
	if !c.owing { // else the journal keeps what is owed
		c.note(StageFailed)
	}
	return err
}

// cleanUp hands on what the request still owes.
func (c *checkpoint) cleanUp() {
	if c.owing {
		c.debts.add(c.rec)
	}
}

// closeArena gives the memory of what was captured back.
func (c *checkpoint) closeArena() {
	c.closeVolumes()
	if c.arena == nil {
		return
	}
	if err := c.arena.Close(); err != nil {
		c.log.Warn("arena not closed", "error", err)
	}
}

// tellSpooled tells of a snapshot that is safe, be it that its sandbox was not stopped.
func (c *checkpoint) tellSpooled(life context.Context) {
	if c.o.Spooled == nil || c.rec.Stage != StageSpooled {
		return
	}
	f, err := c.find(life, c.rec.Key)
	if err != nil {
		c.log.Warn("whoever asked is not told of the snapshot yet", "error", err)
		return
	}
	c.o.Spooled(f)
}

// replicated sees the snapshot into the store.
func (c *checkpoint) replicated(life context.Context) error {
	if c.o.NoWait {
		c.wakeReplicator()
		return nil
	}
	err := c.replicate(life, c.rec, func(done, total int64) { c.o.Progress("replicate", done, total) })
	if err != nil {
		c.log.Warn("not replicated yet", "error", err)
		c.wakeReplicator()
		return fmt.Errorf("%w: snapshot %s is restorable on this node only; replication is tried again until it succeeds: %w", ErrNotReplicated, c.rec.Key, err)
	}
	c.owing = false // the journal has the end of the request
	return nil
}
