package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"diapause.dev/agent/budget"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/netadmin"
	"diapause.dev/agent/outside"
	"diapause.dev/agent/pace"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	"diapause.dev/agent/volumes"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/traffic"
	"diapause.dev/storage"
)

// Config is what checkpoints need.
type Config struct {
	Requests      requests.Dir
	SidecarSocket string        // the socket that sidecars connect to
	StoppedDir    string        // markers of sandboxes that were stopped, for the shim
	Arena         int64         // bytes of memory for what one checkpoint captures in the pause
	PrecopyFrom   int64         // bytes of memory from which on a sandbox's memory is stored before the pause; 0: never
	PrecopyTime   time.Duration // how long that gives way to what else runs; 0: not at all
	Pace          *pace.Pace    // by which it does
	VolumeLimit   int64         // limit in bytes for a pod's volumes on the node, in one snapshot
	CaptureTime   time.Duration // deadline of a capture; after it the sandbox runs on
	KeepCPULimits bool          // a pod's limit of processor time stays while it is saved
	WorkloadSaves bool          // without a cluster: workloads may save their sandboxes
	Node          string        // name of this node
	Memory        *budget.Memory
	Disk          *budget.Disk
	Replication   *budget.Replication
	Runtime       Runtime
	Journal       *journal.Journal
	Unsettled     *journal.Unsettled
	Sandboxes     *keylock.Locks // one checkpoint at a time for each sandbox
	Stores        *snapshots.Stores
	Catalog       *snapshots.Catalog
	Replicator    *snapshots.Replicator
	Lineage       *snapshots.Lineage
	Facts         func(ctx context.Context, sandboxPID int) (snapshot.Facts, error) // of a running sandbox
	// Sessions reports whether a session of exec or of a forwarded port has ever begun in a sandbox.
	Sessions func(sandbox string) bool
	// Load waits until a sandbox that is being restored has all its memory.
	Load    func(ctx context.Context, sandbox string, progress func(done, total int64)) (waited bool, err error)
	Changed func(*journal.Record) // called with each step of a request, in order
	Sleeps  Sleeps                // nil: no pod ever sleeps
	Cluster Cluster               // nil: there is none
	Life    *lifetime.Life
	Metrics Metrics
	Logger  *slog.Logger
}

// Runtime is what checkpoints need of containerd. *cri.Client implements it.
type Runtime interface {
	Find(ctx context.Context, target string) (*cri.Pod, error)
	Get(ctx context.Context, id string) (*cri.Pod, error)
	Pods(ctx context.Context) ([]*cri.Pod, error)
	Running(ctx context.Context, id string) ([]string, error)
	Record(ctx context.Context, id string) (snapshot.Pod, error)
	Checkpoint(ctx context.Context, id, dir string) error
	Paused(ctx context.Context, id string) (bool, error)
	Resume(ctx context.Context, id string) error
	PauseFor(ctx context.Context, id, request string, d time.Duration) (leased bool, err error)
	RenewPause(ctx context.Context, id, request string, d time.Duration) error
	EndPause(ctx context.Context, id, request string) error
	Kill(ctx context.Context, pod *cri.Pod) error
	KillPaused(ctx context.Context, pod *cri.Pod, request string) error
	EndAsleep(ctx context.Context, pod *cri.Pod, status int) error
}

// Metrics count checkpoints.
type Metrics interface {
	Checkpoint(err error, took time.Duration, stages []snapshot.Stage)
}

// Cluster is what checkpoints need of the cluster that a node belongs to.
type Cluster interface {
	// Describe returns what a snapshot of a pod records and where it is stored. It is called for every checkpoint, however
	// the checkpoint was requested. An error refuses the checkpoint.
	Describe(ctx context.Context, pod snapshot.PodRef) (Description, error)
	// DescribeWorkload is Describe for a save that the pod's own workload has started. It refuses the save unless the
	// cluster allows that pod to save itself.
	DescribeWorkload(ctx context.Context, pod snapshot.PodRef) (Description, error)
	// Confirmed waits until the cluster has confirmed the snapshot of a pod, so that every node may restore it. That may
	// be before the snapshot is made. It returns at once for a pod that the cluster does not know. If the cluster does
	// not confirm the snapshot, or not before ctx is done, the error is of kind errkind.ErrNotConfirmed.
	Confirmed(ctx context.Context, pod snapshot.PodRef, key snapshot.Key) error
	// Name returns a name for a snapshot that is being taken and that was requested without a name.
	Name() string
	// Unsaved reports why a save that the pod's own workload started has failed. It must not block.
	Unsaved(pod snapshot.PodRef, err error)
}

// Description is what a cluster knows about a pod that is checkpointed.
type Description struct {
	Cluster        string // the cluster's identity, recorded in snapshots; empty: not known
	NamespaceUID   string // of the pod's namespace, recorded in snapshots; empty: not known
	ServiceAccount string
	Group          map[string]string
	SpecHash       string
	Store          string // location; empty: the agent's own
	// Scope is how much of the pod its snapshots keep, unless the request asks for less.
	Scope snapshot.Scope
	// Stop ends a sandbox after a save that its own workload started, once the snapshot is spooled.
	Stop bool
	// Inheritable: if the pod is deleted while it sleeps, its successors may be restored from the snapshot of its sleep.
	Inheritable bool
	NetAdmin    netadmin.Case
}

// Checkpoints runs the checkpoints of this node. Its methods may be called concurrently.
type Checkpoints struct {
	Config
	log      *slog.Logger
	captures *captures
	control  *control
	settler  *settler
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
	}
}

// CleanMarkers removes the markers of sandboxes that containerd no longer knows.
func (cs *Checkpoints) CleanMarkers(ctx context.Context) { cs.control.cleanMarkers(ctx) }

// Options say what to checkpoint and what to do with the sandbox afterwards.
type Options struct {
	Target string // as cri.Client.Find takes it
	Name   string // of the snapshot; empty: a name is made when the sandbox's turn comes
	Stop   bool   // stop the sandbox once the snapshot is spooled
	// Scope is how much of the pod is kept. The default is the whole pod, unless the cluster's Description says less.
	Scope snapshot.Scope
	// Completed makes the containers of a stopped sandbox report exit status 0, rather than that of a process killed by
	// SIGKILL.
	Completed bool
	// Ending says that the pod is being ended anyway, at the deadline of ctx. Its containers then report the exit status
	// of a process ended by SIGTERM, and the cluster's confirmation is not required. Stop must be set.
	Ending bool
	// NoWait makes Checkpoint return once the snapshot is restorable on this node.
	NoWait bool
	// Progress, if set, is called with the progress of a stage, in bytes of the raw image. total is 0 while it is unknown.
	// Progress is called from several goroutines.
	Progress func(stage string, done, total int64)
	// Named, if set, makes the snapshot's name. It is called in the sandbox's turn, so names may show the snapshots'
	// order.
	Named func() (string, error)
	// Handover, if set, takes the sandbox over once the snapshot is spooled. Stop must not be set.
	Handover Handover
	// WakeToEnd has a pod that falls asleep be woken when it is told to end, so that its shutdown runs.
	WakeToEnd bool
	// Ignored does not keep a pod from falling asleep, and does not wake it.
	Ignored []traffic.Ignored
	// sentry, if set, is a sentry that has started the save by itself.
	sentry *sentry
	// Accepted and Spooled, if set, are called once each when the request has come that far. A warning says what a restore
	// will not bring back, or may not notice.
	Accepted func(request string)
	Spooled  func(f *snapshots.Found, warning string)
}

// purpose returns what the snapshot is for. That of a sleep for which somebody has chosen a name is one that somebody
// asked for.
func (o *Options) purpose() snapshot.Purpose {
	switch {
	case o.Ending:
		return snapshot.ForTermination
	case o.Handover != nil && o.Name == "":
		return snapshot.ForSleep
	}
	return snapshot.ForCheckpoint
}

// checkpoint is one request under way.
type checkpoint struct {
	cs          *Checkpoints
	o           Options
	log         *slog.Logger
	rec         *journal.Record
	pod         *cri.Pod
	description Description // what the cluster knows about the pod
	watch       *stopwatch
	meta        snapshot.Meta
	asleep      bool     // the pod slept when its turn came, and was not woken
	running     []string // ids of the containers that are recorded
	room        room
	arena       *capture.Arena
	capture     *capture.Capture
	writer      *storage.Writer   // of the spool; nil: it has not begun
	toHandle    atomic.Int64      // bytes that the writer has to handle in all; 0: that is not known yet
	baseline    *capture.Baseline // what is stored already; nil: the pause does not look for it
	volumes     *volumes.Volumes  // that lie on the node; nil: not looked for
	outside     *outside.Files    // of volumes that are not part of the snapshot; nil: not looked for
	// owing: the journal could not be written, or the sandbox not resumed. cleanUp then adds the request to the unsettled
	// ones.
	owing bool
}

// slack is how many bytes an arena has beyond the memory in use. They are for what the sandbox allocates until it is
// paused, and for the memory of its file systems.
const slack = 16 << 20

// Checkpoint saves a sandbox as a snapshot. The request ends with ctx until the save starts. From then on it ends only
// with life, so that no pause is left unfinished.
func (cs *Checkpoints) Checkpoint(ctx, life context.Context, o Options) (*snapshots.Found, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	c := &checkpoint{cs: cs, o: o, watch: newStopwatch()}
	started := time.Now()
	err := c.run(ctx, life)
	cs.Metrics.Checkpoint(err, time.Since(started), c.watch.stages)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %.80q: %w", o.Target, err)
	}
	return cs.Catalog.FindAt(life, c.rec.Key, c.rec.Store)
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
	c.closeWriter()
	c.closeArena() // frees its memory, for the next checkpoint, before the wait for the store
	release()
	c.tellSpooled(life)
	if err != nil {
		return err
	}
	return c.replicated(life)
}

// accept resolves the target, journals the request, and waits for the sandbox's turn. If the request does not get its
// turn, or is refused then, accept removes it from the journal.
func (c *checkpoint) accept(ctx context.Context) (release func(), err error) {
	pod, err := c.cs.Runtime.Find(ctx, c.o.Target)
	if err != nil {
		return nil, err
	}
	if err := pod.CheckRuntime(); err != nil {
		return nil, err
	}
	if err := c.enter(pod); err != nil {
		return nil, err
	}
	if release, err = c.turn(ctx); err != nil {
		return nil, c.refused(err)
	}
	if err = c.ready(ctx); err == nil {
		c.watch.lap("queue")
		err = c.begin()
	}
	if err != nil {
		release()
		return nil, c.refused(err)
	}
	return release, nil
}

// enter journals the request before the caller learns that it is accepted. If the agent dies while the request waits
// for its turn, the next agent ends it as failed.
func (c *checkpoint) enter(pod *cri.Pod) error {
	encrypted, err := c.cs.Stores.Spool().Encrypts(pod.Namespace)
	if err != nil {
		return err
	}
	c.rec = &journal.Record{
		ID: requests.NewID(8), UID: snapshot.MakeUID(requests.NewID(16), encrypted),
		Pod: pod.String(), SandboxID: pod.ID, Stop: c.o.Stop, Stage: journal.StageAccepted, Created: time.Now(),
		PodUID: pod.UID, Key: snapshot.Key{Namespace: pod.Namespace, Name: c.o.Name},
		Completed: c.o.Completed, Ending: c.o.Ending, Scope: c.o.Scope, Sleep: c.o.Handover != nil,
		Purpose: c.o.purpose(),
	}
	c.rec.Passing = c.rec.Purpose == snapshot.ForSleep
	if err := c.nameEarly(pod.Name); err != nil {
		return err
	}
	if err := c.cs.Journal.Put(c.rec); err != nil {
		return err
	}
	if c.o.Accepted != nil {
		c.o.Accepted(c.rec.ID)
	}
	return nil
}

// begin journals what the cluster knows about the pod, and tells the cluster about the request.
func (c *checkpoint) begin() error {
	was := c.cs.Journal.Get(c.rec.ID)
	if was == nil || was.Key != c.rec.Key || was.Store != c.rec.Store || was.Scope != c.rec.Scope {
		if err := c.cs.Journal.Put(c.rec); err != nil {
			return err
		}
	}
	c.cs.Changed(c.rec)
	return nil
}

// refused removes a request for which nothing was done: the caller gets err. The request must not stay in the journal,
// because the snapshot that it names may belong to another request.
func (c *checkpoint) refused(err error) error {
	return errors.Join(err, c.cs.Journal.Drop(c.rec.ID))
}

// nameEarly names the snapshot when the request is accepted: it sets the requested name or makes one. But if the
// cluster or Options.Named makes the name, nameInTurn does it, so that names are in the order of the checkpoints.
func (c *checkpoint) nameEarly(pod string) error {
	c.log = c.cs.log.With("request", c.rec.ID, "pod", c.rec.Pod)
	if c.o.Name == "" && (c.o.Named != nil || c.cs.Cluster != nil) {
		return nil
	}
	return c.setName(cmp.Or(c.o.Name, snapshots.NewName(pod, c.rec.Created)))
}

// setName checks a name and writes it into the record. It is the common part of nameEarly and nameInTurn.
func (c *checkpoint) setName(name string) error {
	c.rec.Key.Name = name
	c.log = c.log.With("snapshot", c.rec.Key.String())
	if err := c.rec.Key.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	return nil
}

// nameInTurn names the snapshot when the sandbox's turn has come, if nameEarly has not.
func (c *checkpoint) nameInTurn() error {
	switch {
	case c.rec.Named():
		return nil
	case c.o.Named == nil:
		return c.setName(c.cs.Cluster.Name())
	}
	name, err := c.o.Named()
	if err != nil {
		return err
	}
	return c.setName(name)
}

// turn waits for the sandbox's turn. A sandbox that has started a save by itself must not wait: if it is busy, turn
// fails.
func (c *checkpoint) turn(ctx context.Context) (release func(), err error) {
	c.o.Progress("queue", 0, 0)
	if c.o.sentry == nil {
		return c.cs.Sandboxes.Lock(ctx, c.rec.SandboxID)
	}
	if release = c.cs.Sandboxes.TryLock(c.rec.SandboxID); release == nil {
		return nil, fmt.Errorf("pod %s: %w: it is being checkpointed", c.rec.Pod, errkind.ErrInvalid)
	}
	return release, nil
}

// ready reads the pod's state again when its turn has come, names the snapshot, and checks that the name is free.
func (c *checkpoint) ready(ctx context.Context) (err error) {
	if c.pod, err = c.cs.Runtime.Get(ctx, c.rec.SandboxID); err != nil {
		return err
	}
	if err := c.seeAsleep(); err != nil {
		return err
	}
	if !c.pod.Ready || c.pod.SandboxPID == 0 {
		return fmt.Errorf("pod %s: %w", c.pod, cri.ErrNotRunning)
	}
	if err := c.nameInTurn(); err != nil {
		return err
	}
	if err := c.describe(ctx); err != nil {
		return err
	}
	taken, away, err := c.cs.Catalog.Exists(ctx, c.rec.Key, c.rec.Store)
	if err == nil && away != nil && c.o.Handover != nil {
		return fmt.Errorf("pod %s is not handed over, for its snapshot would be on this node only: %w", c.pod, away)
	}
	if err == nil && taken {
		err = fmt.Errorf("snapshot %s: %w: choose another name or remove it first", c.rec.Key, storage.ErrExists)
	}
	return err
}

// describe asks the cluster what it knows about the pod. Without a cluster, the operator decides whether workloads may
// save their sandboxes.
func (c *checkpoint) describe(ctx context.Context) error {
	if c.cs.Cluster == nil {
		if c.o.sentry != nil && !c.cs.WorkloadSaves {
			return fmt.Errorf("pod %s: %w: it may not save itself: start the agent with --workload-saves", c.pod,
				errkind.ErrNotAllowed)
		}
		return nil
	}
	ask := c.cs.Cluster.Describe
	if c.o.sentry != nil {
		ask = c.cs.Cluster.DescribeWorkload
	}
	d, err := ask(ctx, c.ref())
	if err != nil {
		return fmt.Errorf("pod %s: %w", c.pod, err)
	}
	if _, err := c.cs.Stores.At(d.Store); err != nil {
		return err
	}
	c.description, c.rec.Store, c.rec.NamespaceUID = d, d.Store, d.NamespaceUID
	c.rec.Inheritable = d.Inheritable && c.rec.Purpose == snapshot.ForSleep
	if c.o.Scope != snapshot.WholePod || c.o.Handover != nil { // a pod sleeps with its memory, whatever its snapshots keep
		return nil
	}
	if c.o.sentry != nil && d.Scope != snapshot.WholePod {
		return fmt.Errorf("pod %s: %w: it has itself saved as a whole, and its snapshots are to be %s", c.pod,
			errkind.ErrInvalid, d.Scope)
	}
	c.o.Scope, c.rec.Scope = d.Scope, d.Scope
	return nil
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

// leftBehind is the warning for a pod in which a session by exec may have left a process running.
const leftBehind = "a restore ends what kubectl exec has left running in the pod: the sandbox runs with gVisor's own " +
	"build of runsc"

// joinWarnings returns two warnings as one. Either may be empty.
func joinWarnings(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// prepare does everything that can be done before the pause.
func (c *checkpoint) prepare(ctx, life context.Context) (err error) {
	facts, err := c.cs.Facts(ctx, c.pod.SandboxPID)
	if err != nil {
		return err
	}
	if c.running, err = c.cs.Runtime.Running(ctx, c.pod.ID); err != nil {
		return err
	}
	rec, err := c.cs.Runtime.Record(ctx, c.pod.ID)
	if err != nil {
		return err
	}
	if c.rec.Warning, err = c.description.NetAdmin.Check(c.ref(), rec, c.o.Scope, c.o.Handover != nil); err != nil {
		return err
	}
	if !facts.Repaired && c.o.Handover == nil && c.o.Scope == snapshot.WholePod && c.cs.Sessions(c.pod.ID) {
		c.rec.Warning = joinWarnings(c.rec.Warning, leftBehind)
	}
	c.meta = snapshot.Meta{
		Key: c.rec.Key, UID: c.rec.UID, Scope: c.o.Scope, Purpose: c.rec.Purpose, Inheritable: c.rec.Inheritable,
		Facts: facts, Pod: rec, Origin: c.origin(),
	}
	if err := c.findVolumes(ctx); err != nil {
		return err
	}
	if err := c.fits(); err != nil {
		return err
	}
	if err := c.takeDisk(); err != nil {
		return err
	}
	if err := c.warm(ctx, life); err != nil {
		return err
	}
	c.watch.lap("prepare")
	return nil
}

// origin returns what the snapshot says of its pod.
func (c *checkpoint) origin() snapshot.Origin {
	return snapshot.Origin{
		Pod: c.pod.Name, PodUID: c.pod.UID, SandboxID: c.pod.ID, Node: c.cs.Node,
		ServiceAccount: c.description.ServiceAccount, Group: c.description.Group, SpecHash: c.description.SpecHash,
		Cluster: c.description.Cluster, NamespaceUID: c.description.NamespaceUID,
	}
}

// warm prepares the arena, and the memory that the sandbox has allocated so far, for copies without page faults. With
// RootfsOnly the arena is small: files are elsewhere, and only the sentry knows their size.
func (c *checkpoint) warm(ctx, life context.Context) (err error) {
	if c.o.Scope == snapshot.RootfsOnly {
		return c.newArena(slack, nil)
	}
	memory, err := runsc.MemoryFile(c.pod.SandboxPID)
	if err != nil {
		return err
	}
	defer memory.Close()
	used, err := runsc.MemoryUsage(c.pod.SandboxPID)
	if err != nil {
		return err
	}
	c.o.Progress("prepare", 0, used)
	mapping, err := capture.Map(memory)
	if err != nil {
		return err
	}
	left, err := c.precopy(ctx, life, mapping, memory, used)
	if err != nil {
		return errors.Join(err, mapping.Close())
	}
	if err := c.newArena(left+slack, mapping); err != nil {
		return err
	}
	c.o.Progress("prepare", used, used)
	return nil
}

// newArena makes the arena, with room for the first bytes without page faults. It owns mapping.
func (c *checkpoint) newArena(warm int64, mapping *capture.Mapping) (err error) {
	c.arena, err = capture.NewArena(capture.ArenaOptions{
		Limit: c.room.arena, Warm: warm, Dir: c.cs.Stores.SpoolDir(), Encrypt: c.cs.Stores.Encrypted(),
		Most: c.room.mostPages, Mapping: mapping, Baseline: c.baseline,
	})
	return err
}

func (c *checkpoint) saveRunning(life context.Context) error {
	c.findOutside()
	im, err := c.take(life)
	if err != nil {
		return err
	}
	if err := c.toSpool(life, im); err != nil || c.o.sentry == nil || !c.description.Stop {
		return err
	}
	if err := c.confirmation().within(life, savedTime); err != nil {
		return err
	}
	// The sentry has already let the sandbox run on. What it has done since is lost.
	c.rec.Completed = true
	if err := c.cs.control.stop(c.pod, c.rec, c.watch, c.cs.Runtime.Kill); err != nil {
		return err
	}
	c.noteOrOwe(journal.StageSpooled)
	return nil
}

// What happens if the journal cannot be written, by the stage that was to be written:
//
//   - accepted (enter, begin): the request is refused.
//   - paused (noteOrFail): the checkpoint fails before the pause.
//   - spooled, failed (noteOrOwe): the request goes on as if the stage had been written. If no later stage could be
//     written either, cleanUp adds the request to the unsettled ones. SettleLoop writes the record from there.
//   - replicated: Replicator.Replicate adds the request to the unsettled ones and still succeeds. SettleLoop first
//     writes spooled. The replicator then finds the snapshot in its store and writes replicated.
//   - failed, because the snapshot can never be replicated: the journal still says spooled. The replicator tries to
//     replicate again, and fails again, until it can write failed.
//
// If the agent dies before the record is written, the next one goes on from the stage in the journal: see settleOne.

// noteOrFail journals a stage. If it returns an error, the caller must not take the step that the stage announces.
func (c *checkpoint) noteOrFail(s journal.Stage) error {
	c.rec.Stage, c.rec.Timeline = s, c.watch.stages
	err := c.cs.Journal.Put(c.rec)
	c.cs.Changed(c.rec)
	return err
}

// noteOrOwe journals how far the request has come. If that fails, the request still goes on and owes the record: it is
// written later.
func (c *checkpoint) noteOrOwe(s journal.Stage) {
	err := c.noteOrFail(s)
	c.owing = err != nil
	if err != nil {
		c.log.Error("the journal could not be written; it is retried", "error", err)
	}
}

// fail journals why the request ended.
func (c *checkpoint) fail(err error) error {
	c.log.Error("checkpoint failed", "error", err)
	if c.rec.Stage == journal.StageSpooled {
		// The snapshot is in the spool and only the stop failed, so the snapshot is still replicated.
		if !c.owing { // else a later attempt may stop the sandbox
			c.rec.RunsOn = err.Error()
			c.noteOrOwe(journal.StageSpooled)
		}
		c.cs.Replicator.Wake()
		if c.o.Handover != nil {
			return fmt.Errorf("snapshot %s was made, but the pod does not sleep: %w", c.rec.Key, err)
		}
		return fmt.Errorf("snapshot %s was made, but the sandbox was not stopped: %w", c.rec.Key, err)
	}
	c.rec.Error = err.Error()
	if !c.owing { // else the journal must keep the stage, which says what is still to be done
		c.noteOrOwe(journal.StageFailed)
	}
	return err
}

// cleanUp adds the request to Unsettled if work remains for it.
func (c *checkpoint) cleanUp() {
	if c.owing {
		c.cs.Unsettled.Add(c.rec)
	}
}

// closeArena frees the captured memory and volumes, and gives back what the checkpoint holds of the node's budgets.
func (c *checkpoint) closeArena() {
	defer c.room.leave()
	c.volumes.Close()
	c.outside.Close()
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
		c.owing = false
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
	c.owing = false
	return nil
}
