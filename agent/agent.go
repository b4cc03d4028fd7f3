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
	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/kube"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/local"
	"diapause.dev/agent/newpods"
	"diapause.dev/agent/ready"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/rootsocket"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	"diapause.dev/agent/storemetrics"
	"diapause.dev/cri"
	"diapause.dev/runsc"
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

	conn        *kube.Connection // nil: the node belongs to no cluster
	services    kube.Services    // of the cluster
	cluster     *kube.Cluster    // nil if conn is
	catalog     *snapshots.Catalog
	replicator  *snapshots.Replicator
	evictor     *snapshots.Evictor
	marks       *asleep.Marks
	reminders   *asleep.Reminders
	needs       *restore.Needs
	waker       *sleep.Waker
	demand      *ready.Demand
	collector   *sleep.Collector
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
	if err := a.assemble(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
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
	if err := a.connect(); err != nil {
		return err
	}
	a.stores, err = snapshots.Open(ctx, snapshots.Options{
		StateDir: a.cfg.StateDir, Store: a.cfg.Store, StoreID: a.cfg.StoreID, Codec: a.cfg.Codec, Keys: a.cfg.Keys,
		SigningKey: a.cfg.SigningKey, TrustedKeys: a.cfg.TrustedKeys,
		Credentials: a.cfg.Credentials, CacheSize: a.cfg.CacheSize, AcceptNetworkDirectory: a.cfg.AcceptNetworkDirectory,
		Cluster: a.services.Stores,
		Opened:  a.bell.Ring, Measure: storemetrics.New(a.metrics.registry).Backend, Logger: a.log,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, containerdTime)
	defer cancel()
	a.cri, err = cri.Dial(ctx, cri.Options{Address: a.cfg.Containerd})
	return err
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

// Run does the work of the agent and of its cluster's side, until ctx is done. It returns when both have ended.
func (a *Agent) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.serve(ctx) })
	if a.cluster != nil {
		g.Go(func() error { return a.cluster.Run(ctx) })
	}
	return g.Wait()
}

// serve serves sidecars, finishes what an earlier agent left, and then serves all, until ctx is done. It returns when
// everything that it started has ended.
func (a *Agent) serve(ctx context.Context) error {
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
		Sandboxes: a.sandboxes, Cluster: a.decisions(), Metrics: a.metrics, Life: a.life, Logger: a.log,
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
	if a.conn != nil {
		a.conn.Close()
	}
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
