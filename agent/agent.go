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

	cri     *cri.Client
	spool   *storage.Store
	stores  *stores
	cache   *lazyCache
	cluster Cluster        // or nil
	beside  sync.WaitGroup // what is done beside the answers to shims
	journal *journal
	metrics *metrics
	node    *nodeFacts

	captures *captures
	restores *restores
	turns    *turns // one checkpoint at a time for each sandbox
	moving   *turns // one replication at a time for each snapshot
	debts    *debts

	decisions *decisions

	lineageMu sync.Mutex
	lineage   map[descent]storage.Key // a sandbox's newest snapshot of a scope, or the one it came from

	wake chan struct{} // there is something to replicate

	life context.Context // done when the agent is to stop
	end  context.CancelCauseFunc
}

// containerdTime bounds the wait for containerd at start.
const containerdTime = 30 * time.Second

// New opens everything an agent works on. It fails when another agent already works on the same
// state directory, or when containerd does not answer.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	a := &Agent{
		cfg: cfg, log: cfg.Logger, started: time.Now(),
		metrics:  newMetrics(),
		node:     &nodeFacts{config: cfg.RunscConfig},
		captures: &captures{expected: make(map[string]*expectedCapture)},
		turns:    newTurns(), moving: newTurns(), debts: newDebts(), decisions: newDecisions(),
		lineage: make(map[descent]storage.Key),
		wake:    make(chan struct{}, 1),
	}
	a.life, a.end = context.WithCancelCause(context.WithoutCancel(ctx))
	a.cache = &lazyCache{dir: filepath.Join(cfg.StateDir, "cache"), maxBytes: cfg.CacheSize / 2, log: cfg.Logger}
	a.stores = newStores(cfg.Store, a.openStore)
	a.restores = newRestores(a)
	for _, d := range []string{cfg.RequestDir, cfg.StoppedDir, cfg.StateDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
	}
	if err := lock(cfg.StateDir); err != nil {
		return nil, err
	}
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Agent) open(ctx context.Context) (err error) {
	if a.journal, err = openJournal(filepath.Join(a.cfg.StateDir, "journal")); err != nil {
		return err
	}
	if _, err = a.cfg.codec(""); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	b, err := dir.Open(a.spoolDir())
	if err != nil {
		return fmt.Errorf("open spool: %w", err)
	}
	spool := a.storeOptions()
	spool.Spool = true
	if a.spool, err = storage.Open(ctx, b, spool); err != nil {
		return fmt.Errorf("open spool: %w", err)
	}
	if _, err := a.stores.own.get(ctx); err != nil {
		a.log.Warn("the store cannot be reached; checkpoints stay in the spool until it can", "error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, containerdTime)
	defer cancel()
	a.cri, err = cri.Dial(ctx, cri.Options{Address: a.cfg.Containerd})
	return err
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

// Close gives everything back that New opened.
func (a *Agent) Close() error {
	a.end(ErrStopping)
	a.beside.Wait()
	return errors.Join(a.cri.Close(), a.stores.close(), a.spool.Backend().Close(), a.cache.close())
}

// stopTime is how long requests under way may take to end after the agent was told to stop; their
// contexts are done by then.
const stopTime = 20 * time.Second

// serveLocal serves the local service until ctx is done.
func (a *Agent) serveLocal(ctx context.Context, l *rootsocket.Listener) error {
	defer context.AfterFunc(ctx, func() { a.end(ErrStopping) })()
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
