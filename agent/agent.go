package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/rootsocket"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/gofer"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
)

// Agent is the daemon of one node.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	locked  *os.File // keeps other agents from the state directory

	cri     *cri.Client
	spool   *storage.Store
	stores  *stores
	cache   *lazyCache
	cluster Cluster // or nil
	journal *journal.Journal
	metrics *metrics
	node    *nodeFacts

	captures  *captures
	restores  *restores
	podNames  podNames
	turns     *keylock.Locks // one checkpoint at a time for each sandbox
	moving    *keylock.Locks // one replication at a time for each snapshot
	unsettled *journal.Unsettled
	lagging   *lagging

	decisions *decisions

	uses    uses                 // of snapshots in the spool
	spooled map[storage.Key]kept // what upkeep has read of the spool; its own

	lineageMu sync.Mutex
	lineage   map[descent]storage.Key // a sandbox's newest snapshot of a scope, or the one it came from

	wake chan struct{} // there is something to replicate

	life *lifetime.Life
}

// containerdTime bounds the wait for containerd at start.
const containerdTime = 30 * time.Second

// New opens everything an agent works on. It fails when another agent already works on the same
// state directory, or when containerd does not answer; nothing is open then.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	a := &Agent{
		cfg: cfg, log: cfg.Logger, started: time.Now(), life: lifetime.New(ctx),
		metrics:  newMetrics(),
		node:     &nodeFacts{config: cfg.RunscConfig},
		captures: &captures{expected: make(map[string]*expectedCapture)},
		turns:    keylock.New(), moving: keylock.New(), unsettled: journal.NewUnsettled(), decisions: newDecisions(),
		lineage: make(map[descent]storage.Key),
		wake:    make(chan struct{}, 1),
	}
	a.lagging = newLagging(a.metrics)
	a.restores = newRestores(a)
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// open opens what is on disk, and then the rest. Close gives back what is open, whatever fails.
func (a *Agent) open(ctx context.Context) (err error) {
	if err := a.lockDirs(); err != nil {
		return err
	}
	if _, err := a.cfg.codec(""); err != nil {
		return fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	if a.journal, err = journal.Open(filepath.Join(a.cfg.StateDir, "journal"), a.log); err != nil {
		return err
	}
	if err := a.uses.open(filepath.Join(a.cfg.StateDir, "uses.json")); err != nil {
		a.log.Warn("snapshots are evicted in the order in which they were made", "error", err)
	}
	if a.spool, err = a.openSpool(ctx); err != nil {
		return fmt.Errorf("open spool: %w", err)
	}
	a.cache = &lazyCache{dir: filepath.Join(a.cfg.StateDir, "cache"), maxBytes: a.cfg.CacheSize / 2, log: a.log}
	a.stores = newStores(a.cfg.Store, a.openStore)
	if _, err := a.stores.own.get(ctx); err != nil {
		a.log.Warn("the store cannot be reached; checkpoints stay in the spool until it can", "error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, containerdTime)
	defer cancel()
	a.cri, err = cri.Dial(ctx, cri.Options{Address: a.cfg.Containerd})
	return err
}

// lockDirs makes the agent's directories, and keeps other agents from the state directory.
func (a *Agent) lockDirs() (err error) {
	for _, d := range []string{a.cfg.RequestDir, a.cfg.StoppedDir, a.cfg.StateDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
	}
	a.locked, err = lock(a.cfg.StateDir)
	return err
}

func (a *Agent) openSpool(ctx context.Context) (*storage.Store, error) {
	b, err := dir.Open(a.spoolDir())
	if err != nil {
		return nil, err
	}
	o := a.storeOptions()
	o.Spool = true
	s, err := storage.Open(ctx, b, o)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return s, nil
}

func (a *Agent) spoolDir() string { return filepath.Join(a.cfg.StateDir, "spool") }

// Run recovers what an earlier agent owed, then serves until ctx is done. It returns when all that
// it started has ended.
func (a *Agent) Run(ctx context.Context) error {
	sidecars, err := rootsocket.Listen("unixpacket", a.cfg.SidecarSocket, a.log)
	if err != nil {
		return err
	}
	local, err := rootsocket.Listen("unix", a.cfg.Socket, a.log)
	if err != nil {
		return errors.Join(err, sidecars.Close())
	}
	if err := a.mark(); err != nil {
		return errors.Join(err, sidecars.Close(), local.Close())
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return gofer.New(sidecars, sidecarHandler{a}, a.log).Serve(ctx) })
	a.recover(ctx) // before the local service answers: nothing new is under way
	g.Go(func() error { return a.serveLocal(ctx, local) })
	g.Go(func() error { return a.settleLoop(ctx) })
	g.Go(func() error { return a.replicateLoop(ctx) })
	g.Go(func() error { return a.upkeepLoop(ctx) })
	if a.cfg.MetricsAddr != "" {
		g.Go(func() error { return a.metrics.serve(ctx, a.cfg.MetricsAddr) })
	}
	g.Go(func() error {
		if _, err := a.node.get(ctx); err != nil { // known before the first request asks
			a.log.Error("this node cannot checkpoint or restore yet", "error", err)
		}
		return nil
	})
	a.log.Info("agent started", "version", a.cfg.Version, "socket", a.cfg.Socket, "store", a.cfg.Store)
	return g.Wait()
}

// Close gives everything back that New opened, the state directory last.
func (a *Agent) Close() (err error) {
	a.life.End(errkind.ErrStopping)
	a.life.Wait()
	if a.cri != nil {
		err = a.cri.Close()
	}
	if a.stores != nil {
		err = errors.Join(err, a.stores.close(), a.cache.close())
	}
	if a.spool != nil {
		err = errors.Join(err, a.spool.Backend().Close())
	}
	if a.locked != nil {
		err = errors.Join(err, a.locked.Close())
	}
	return err
}

// Bounds of an agent's end: together they are less than the grace period of the DaemonSet's pods.
const (
	// stopTime is how long requests under way may take to end after the agent was told to stop; their
	// contexts are done by then.
	stopTime = 20 * time.Second
	// lastWords is how much longer the cluster may take to hear of what has come to pass.
	lastWords = 3 * time.Second
)

// serveLocal serves the local service until ctx is done.
func (a *Agent) serveLocal(ctx context.Context, l *rootsocket.Listener) error {
	defer context.AfterFunc(ctx, func() { a.life.End(errkind.ErrStopping) })()
	s := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 20))
	localv1.RegisterAgentServer(s, &service{Agent: a})
	localv1.RegisterShimServer(s, &shimService{Agent: a})
	stop := context.AfterFunc(ctx, func() {
		kill := time.AfterFunc(stopTime, s.Stop)
		s.GracefulStop()
		kill.Stop()
	})
	defer stop()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("local service: %w", err)
	}
	s.GracefulStop() // waits for the one above
	return nil
}

// descent is what a snapshot descends from. Those of different scopes have nothing in common.
type descent struct {
	sandbox string
	scope   snapshot.Scope
}

func (a *Agent) setLineage(sandbox string, scope snapshot.Scope, k storage.Key) {
	a.lineageMu.Lock()
	defer a.lineageMu.Unlock()
	a.lineage[descent{sandbox, scope}] = k
}

func (a *Agent) lineageOf(sandbox string, scope snapshot.Scope) (storage.Key, bool) {
	a.lineageMu.Lock()
	defer a.lineageMu.Unlock()
	k, ok := a.lineage[descent{sandbox, scope}]
	return k, ok
}
