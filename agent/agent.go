package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sync/errgroup"

	"diapause.dev/agent/admission"
	"diapause.dev/agent/asleep"
	"diapause.dev/agent/backlog"
	"diapause.dev/agent/budget"
	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/local"
	"diapause.dev/agent/newpods"
	"diapause.dev/agent/pace"
	"diapause.dev/agent/ready"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/rootsocket"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	"diapause.dev/agent/storemetrics"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/cgroup"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/runsc/use"
)

// Agent is the daemon of one node. It creates the parts that do the work, and runs them.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	locked  *flock.Flock // keeps other agents from the state directory
	life    *lifetime.Life
	metrics *metrics
	node    *runsc.Node
	cluster Cluster // or nil
	bell    snapshots.Bell
	started time.Time

	requests  requests.Dir
	journal   *journal.Journal
	unsettled *journal.Unsettled
	sandboxes *keylock.Locks // one checkpoint at a time for each sandbox
	lineage   *snapshots.Lineage
	backlog   *backlog.Backlog
	stores    *snapshots.Stores
	cri       *cri.Client

	catalog     *snapshots.Catalog
	replicator  *snapshots.Replicator
	evictor     *snapshots.Evictor
	marks       *asleep.Marks
	reminders   *asleep.Reminders
	restores    *restore.Restores
	wakes       *restore.Wakes
	newPods     *newpods.Starter
	checkpoints *checkpoint.Checkpoints
	sleeps      *sleep.Sleeps
	admission   *admission.Queue
	ready       *ready.Pool
	lives       *lives.Lives
}

// containerdTime bounds the wait for containerd at start.
const containerdTime = 30 * time.Second

// New opens everything that an agent works on. It fails if another agent already works on the same state directory, or
// if containerd does not answer. After an error nothing is open.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	a := &Agent{
		cfg: cfg, log: cfg.Logger, started: time.Now(), life: lifetime.New(ctx), metrics: newMetrics(),
		node: runsc.NewNode(cfg.RunscConfig), bell: snapshots.NewBell(), requests: requests.Dir(cfg.RequestDir),
		unsettled: journal.NewUnsettled(), sandboxes: keylock.New(), lineage: snapshots.NewLineage(),
	}
	a.metrics.registry.MustRegister(BuildInfo(cfg.Version))
	a.backlog = backlog.New(a.metrics.Waiting)
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.assemble()
	return a, nil
}

// open opens the state on disk first, and then containerd. If it fails, Close closes what is open.
func (a *Agent) open(ctx context.Context) (err error) {
	if err := a.lockDirs(); err != nil {
		return err
	}
	if a.journal, err = journal.Open(filepath.Join(a.cfg.StateDir, "journal"), a.log); err != nil {
		return err
	}
	a.stores, err = snapshots.Open(ctx, snapshots.Options{
		StateDir: a.cfg.StateDir, Store: a.cfg.Store, StoreID: a.cfg.StoreID, Codec: a.cfg.Codec, Keys: a.cfg.Keys,
		SigningKey: a.cfg.SigningKey, TrustedKeys: a.cfg.TrustedKeys,
		Credentials: a.cfg.Credentials, CacheSize: a.cfg.CacheSize, AcceptNetworkDirectory: a.cfg.AcceptNetworkDirectory,
		Opened: a.bell.Ring, Measure: storemetrics.New(a.metrics.registry).Backend, Logger: a.log,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, containerdTime)
	defer cancel()
	a.cri, err = cri.Dial(ctx, cri.Options{Address: a.cfg.Containerd})
	return err
}

// assemble creates the parts from what open has opened.
func (a *Agent) assemble() {
	readers := snapshots.OpenReaders(a.stores, a.life)
	a.catalog = snapshots.NewCatalog(a.stores, readers, a.journal, a.backlog, a.changed, a.bell.Ring)
	a.replicator = snapshots.NewReplicator(a.catalog, a.unsettled, a.sandboxes, a.bell)
	a.evictor = snapshots.NewEvictor(a.catalog)
	a.marks = asleep.NewMarks(a.requests, a.log)
	a.reminders = asleep.NewReminders(asleep.Config{
		Dir: a.cfg.Reminders, Runtime: a.cri, Marks: a.marks, Logger: a.log,
	})
	a.restores = restore.New(restore.Config{
		Requests: a.requests, SidecarSocket: a.cfg.SidecarSocket, KeepCPULimits: a.cfg.KeepCPULimits,
		Marks: a.marks, Reminders: a.reminders, VolumeLimit: a.cfg.VolumeLimit, Runtime: a.cri,
		Readers: readers, Lineage: a.lineage, Pace: pace.New(), Facts: a.node.Facts, Life: a.life, Metrics: a.metrics,
		Logger: a.log,
	})
	a.wakes = restore.NewWakes(a.restores)
	a.newPods = newpods.New(newpods.Config{Runtime: a.cri, Readers: readers, Restores: a.restores})
	a.catalog.Guard(a.wakes.Needed)
	a.checkpoints = checkpoint.New(checkpoint.Config{
		Requests: a.requests, SidecarSocket: a.cfg.SidecarSocket, StoppedDir: a.cfg.StoppedDir, Arena: a.cfg.Arena,
		PrecopyFrom:   a.cfg.PrecopyFrom,
		PrecopyTime:   a.cfg.PrecopyTime,
		Pace:          pace.New(),
		KeepCPULimits: a.cfg.KeepCPULimits,
		Memory:        budget.NewMemory(a.cfg.Memory, a.metrics.CheckpointMemory),
		Disk:          budget.NewDisk(a.stores.SpoolDir(), a.cfg.DiskFloor),
		Replication:   a.replication(),
		VolumeLimit:   a.cfg.VolumeLimit, CaptureTime: a.cfg.CaptureTime, WorkloadSaves: a.cfg.WorkloadSaves,
		Node: a.cfg.Node, Runtime: a.cri, Journal: a.journal, Unsettled: a.unsettled, Sandboxes: a.sandboxes,
		Stores: a.stores, Catalog: a.catalog,
		Replicator: a.replicator, Lineage: a.lineage, Facts: a.node.FactsOf, Load: a.restores.Await,
		Sessions: func(sandbox string) bool {
			last, err := use.Session(a.usedDir(), sandbox)
			return err == nil && !last.IsZero()
		},
		Changed: a.changed, Sleeps: sleepers{a}, Life: a.life, Metrics: a.metrics, Logger: a.log,
	})
	m := newSleepMetrics(a.metrics.registry, func() int { return len(a.marks.All()) },
		func() int { return a.admission.Waiting() }, func() int { return a.ready.Ready() })
	a.ready = ready.New(ready.Config{
		Memory: a.cfg.ReadyMemory, Reserve: a.cfg.WakeReserve, Available: cgroup.Available,
		Waiting: func() int { return a.admission.Waiting() }, Asleep: a.marks.All, Order: a.cri.OrderSleep,
		Told: func(sandbox string) { a.sleeps.ReadyChanged(sandbox) },
		Loads: func(ctx context.Context) bool {
			f, err := a.node.Facts(ctx)
			return err == nil && f.Repaired
		},
		Metrics: m, Logger: a.log,
	})
	a.sleeps = sleep.New(sleep.Config{
		Checkpoints: a.checkpoints, Restores: a.wakes, Runtime: a.cri, Snapshots: a.catalog, Journal: a.journal,
		Life: a.life, Ready: a.ready, Metrics: m, Logger: a.log,
	})
	a.lives = lives.New(lives.Config{Dir: a.cfg.Past, Runtime: a.cri, Journal: a.journal, Logger: a.log})
	a.admission = admission.New(admission.Config{
		Reserve: a.cfg.WakeReserve, Available: cgroup.Available, Restores: a.wakes, Life: a.life, Metrics: m,
		OnShort: a.ready.Changed, Logger: a.log,
	})
}

// sleepers implements checkpoint.Sleeps.
type sleepers struct{ a *Agent }

// Asleep implements checkpoint.Sleeps.
func (s sleepers) Asleep(sandbox string) bool {
	_, ok := s.a.sleeps.Asleep(sandbox)
	return ok
}

// SleepsOn implements checkpoint.Sleeps.
func (s sleepers) SleepsOn(sandbox string) (id snapshots.ID, ok bool) {
	return s.a.wakes.SleepsOn(sandbox)
}

// Wake implements checkpoint.Sleeps.
func (s sleepers) Wake(ctx context.Context, sandbox string) error {
	_, err := s.a.sleeps.Wake(ctx, sandbox, "checkpoint")
	return err
}

// replication returns the budget for snapshots that wait for their store.
func (a *Agent) replication() *budget.Replication {
	waiting := checkpoint.Waiting(a.journal, a.stores.Spool())
	return budget.NewReplication(a.cfg.BacklogSize, a.cfg.BacklogCount, waiting)
}

// usedDir returns the directory of the files that shims touch while somebody uses a pod. They know the socket alone.
func (a *Agent) usedDir() string { return use.Dir(a.cfg.Socket) }

// lockDirs creates the agent's directories, and keeps other agents from the state directory.
func (a *Agent) lockDirs() (err error) {
	for _, d := range []string{a.cfg.RequestDir, a.cfg.StoppedDir, a.cfg.StateDir, a.usedDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
	}
	for _, d := range []string{a.cfg.Reminders, a.cfg.Past} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("agent: for notes of pods, whatever --state-dir is: %w: give the agent this directory of the node",
				err)
		}
	}
	a.locked, err = lock(a.cfg.StateDir)
	return err
}

// Run serves sidecars, finishes what an earlier agent left, and then serves all, until ctx is done. It returns when
// everything that it started has ended.
func (a *Agent) Run(ctx context.Context) error {
	sidecars, err := rootsocket.Listen("unixpacket", a.cfg.SidecarSocket, a.log)
	if err != nil {
		return err
	}
	socket, err := rootsocket.Listen("unix", a.cfg.Socket, a.log)
	if err != nil {
		return errors.Join(err, sidecars.Close())
	}
	if err := a.mark(); err != nil {
		return errors.Join(err, sidecars.Close(), socket.Close())
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return gofer.New(sidecars, sidecarHandler{a}, a.log).Serve(ctx) })
	a.checkpoints.Recover(ctx) // before the local service answers, so no new request is under way
	a.wakes.HoldAsleep(ctx)    // before anybody can ask to remove a snapshot
	a.clean(ctx)
	g.Go(func() error { return local.Serve(ctx, socket, a.local()) })
	g.Go(func() error { return a.checkpoints.SettleLoop(ctx) })
	g.Go(func() error { return a.replicator.Run(ctx) })
	g.Go(func() error { return a.upkeepLoop(ctx) })
	g.Go(func() error { return a.restores.RetryLoop(ctx) })
	g.Go(func() error { a.ready.Run(ctx); return nil })
	if a.cfg.MetricsAddr != "" {
		g.Go(func() error { return a.metrics.serve(ctx, a.cfg.MetricsAddr) })
	}
	g.Go(func() error {
		if _, err := a.node.Facts(ctx); err != nil { // computes them before the first request needs them
			a.log.Error("this node cannot checkpoint or restore yet", "error", err)
		}
		return nil
	})
	a.log.Info("agent started", "version", a.cfg.Version, "socket", a.cfg.Socket, "store", a.cfg.Store)
	return g.Wait()
}

// local returns the configuration of the local service.
func (a *Agent) local() local.Config {
	return local.Config{
		Version: a.cfg.Version, Node: a.cfg.Node, Store: a.cfg.Store, StateDir: a.cfg.StateDir, Started: a.started,
		Containerd: a.cfg.Containerd, RunscConfig: a.cfg.RunscConfig, Runtime: a.cri, Facts: a.node.Facts,
		Checkpoints: a.checkpoints, Restores: a.restores, Wakes: a.wakes, Reminders: a.reminders, NewPods: a.newPods,
		Lives: a.lives, Sleeps: a.sleeps, Admission: a.admission,
		Stores: a.stores, Catalog: a.catalog, Backlog: a.backlog,
		Sandboxes: a.sandboxes, Cluster: a.cluster, Metrics: a.metrics, Life: a.life, Logger: a.log,
	}
}

// sidecarHandler implements gofer.Handler.
type sidecarHandler struct{ a *Agent }

// Checkpoint implements gofer.Handler.
func (h sidecarHandler) Checkpoint(o sidecar.Options, c *sidecar.Conn) error {
	return h.a.checkpoints.Sidecar(o, c)
}

// Restore implements gofer.Handler.
func (h sidecarHandler) Restore(o sidecar.Options) (gofer.Source, error) {
	return h.a.restores.Source(o)
}

// Close closes everything that New opened, the lock of the state directory last.
func (a *Agent) Close() (err error) {
	a.life.End(errkind.ErrStopping)
	a.life.Wait()
	if a.cri != nil {
		err = a.cri.Close()
	}
	if a.stores != nil {
		err = errors.Join(err, a.stores.Close())
	}
	if a.locked != nil {
		err = errors.Join(err, a.locked.Close())
	}
	return err
}
