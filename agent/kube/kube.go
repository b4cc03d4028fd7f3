package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/kube/names"
	"diapause.dev/api/snapshot"
)

// Config says which cluster an agent belongs to, and the agent's place in it.
type Config struct {
	RestConfig *rest.Config
	NodeName   string // the cluster's name for the agent's node
	Namespace  string // namespace of the agents and their Lease
	Store      string // location of the agent's own store
	StateDir   string // for the ledger; must survive a reboot
	LeaseName  string // of the Lease that makes one agent do the cluster's duties; empty: DefaultLeaseName
	// OrphanAge is the age at which a snapshot of this cluster that no PodSnapshot names is removed from its store; 0:
	// never.
	OrphanAge time.Duration
	// Now is the clock for the names and the expiry of snapshots; nil: time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// DefaultLeaseName is the name of the Lease that the agents of a cluster contend for.
const DefaultLeaseName = "diapause-agent"

// An agent sends few requests to the API server, and some delay the start of a pod. So the client does not throttle
// them below this rate per second.
const (
	requestRate  = 200
	requestBurst = 400
)

// Cluster is the cluster that an agent's node belongs to. New makes it; it works while Run runs.
type Cluster struct {
	cfg    Config
	node   Node
	log    *slog.Logger
	mgr    manager.Manager
	stop   context.CancelFunc // tells Run to end
	client client.Client      // reads watched objects from the cache
	live   client.Reader      // reads from the API server
	events events.EventRecorder

	names    *names.Clock
	arrivals *arrivals
	ledger   *ledger
	requests *requests
	orders   *orders
	latest   *latest
	attempts *attempts
	removals chan struct{} // has an element for each removal under way
	news     bell          // of PodSnapshots
	reports  chan report
	synced   chan struct{} // closed when the caches are filled

	triggers, pods, snapshots kicker // of the controllers of these names
	keeper, policies, configs kicker
	unanswered                kicker
	leading                   atomic.Bool
	identity                  atomic.Pointer[string] // of the cluster; nil: not known yet
	begun                     chan struct{}          // a signal that leading has begun
	life                      context.Context        // of checkpoints; set by Run
	work                      sync.WaitGroup         // what Run waits for
}

// New prepares an agent's work in its cluster. It opens the ledger, and sends nothing to the API server.
func New(cfg Config, node Node) (*Cluster, error) {
	if cfg.LeaseName == "" {
		cfg.LeaseName = DefaultLeaseName
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	logTo(cfg.Logger)
	l, err := openLedger(filepath.Join(cfg.StateDir, "kube"), cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	running, stop := context.WithCancel(context.Background())
	mgr, err := newManager(running, cfg)
	if err != nil {
		stop()
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	c := &Cluster{
		cfg: cfg, node: node, log: cfg.Logger, mgr: mgr, stop: stop,
		client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorder("diapause"),
		names: names.NewClock(cfg.Now), arrivals: newArrivals(),
		ledger: l, requests: newRequests(), orders: newOrders(), latest: newLatest(), attempts: newAttempts(),
		removals: make(chan struct{}, maxRemovals),
		reports:  make(chan report, maxReports), synced: make(chan struct{}), begun: make(chan struct{}, 1),
	}
	if err := c.control(); err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return c, nil
}

// logTo sends the logs of libraries to the logger of this process's first agent.
func logTo(l *slog.Logger) {
	logOnce.Do(func() {
		klog.SetSlogLogger(slog.New(quiet{l.Handler()}))
		log.SetLogger(logr.FromSlogHandler(quiet{l.Handler()}))
	})
}

var logOnce sync.Once

func newManager(life context.Context, cfg Config) (manager.Manager, error) {
	rc := rest.CopyConfig(cfg.RestConfig)
	if rc.QPS == 0 {
		rc.QPS, rc.Burst = requestRate, requestBurst
	}
	return manager.New(rc, manager.Options{
		Scheme:                 scheme,
		MapperProvider:         func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper(), nil },
		Logger:                 logr.FromSlogHandler(quiet{cfg.Logger.Handler()}),
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		NewCache:               yieldingTo(life),
		Cache: cache.Options{
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName)},
			},
			DefaultTransform: cache.TransformStripManagedFields(),
		},
		Controller: config.Controller{
			SkipNameValidation: new(true), // agents of several nodes may run in one process
			NeedLeaderElection: new(false),
			CacheSyncTimeout:   syncTime,
		},
	})
}

// syncTime is how long an agent waits at its start for the API server and for its own resources' definitions. Nobody
// leaves a cluster without them for that long.
const syncTime = 30 * 24 * time.Hour

// Run works until ctx is done. It returns when everything that it started has ended.
func (c *Cluster) Run(ctx context.Context) error {
	all, err := c.node.Requests()
	if err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	c.requests.load(all)
	for _, q := range all {
		c.names.Saw(q.Key.Name, q.Created)
	}
	for _, k := range append(c.requests.keys(), c.ledger.keys()...) {
		c.snapshots.kick(named(k))
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(errkind.ErrStopping) })()
	defer context.AfterFunc(ctx, c.stop)()
	c.life = life
	ctx, cancel := context.WithCancel(ctx)
	c.work.Go(func() { c.awaitCaches(ctx) })
	c.work.Go(func() { c.lead(ctx) })
	c.work.Go(func() { c.takeOver(ctx) })
	c.work.Go(func() { c.sweepLoop(ctx) })
	c.work.Go(func() { c.sendReports(ctx) })
	if err = c.mgr.Start(ctx); ctx.Err() != nil {
		err = nil // the failure is a consequence of that
	}
	cancel()
	end(errkind.ErrStopping)
	c.work.Wait()
	if err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	return nil
}

// awaitCaches closes synced when the caches are filled.
func (c *Cluster) awaitCaches(ctx context.Context) {
	if !c.mgr.GetCache().WaitForCacheSync(ctx) || ctx.Err() != nil || c.fill(ctx) != nil {
		return
	}
	close(c.synced)
	if _, err := c.identify(ctx); err != nil && ctx.Err() == nil { // so that no checkpoint has to ask
		c.log.Warn("asked again with the next checkpoint", "error", err)
	}
}

// fill waits until every kind of object that is read from the cache is in the cache.
func (c *Cluster) fill(ctx context.Context) error {
	for _, o := range watched() {
		if _, err := c.mgr.GetCache().GetInformer(ctx, o); err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	return nil
}

// named returns a snapshot's key in the form that objects have.
func named(k snapshot.Key) client.ObjectKey {
	return client.ObjectKey{Namespace: k.Namespace, Name: k.Name}
}
