package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/kube/age"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/request"
	"diapause.dev/agent/kube/rollback"
	"diapause.dev/agent/kube/sleeppolicy"
	"diapause.dev/agent/kube/slumber"
	"diapause.dev/agent/kube/start"
	"diapause.dev/agent/kube/sweep"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Config says which cluster an agent belongs to, and the agent's place in it.
type Config struct {
	RestConfig *rest.Config
	NodeName   string // the cluster's name for the agent's node
	Namespace  string // namespace of the agents, and of the controller and its Lease
	Store      string // location of the agent's own store
	StateDir   string // for the ledger; must survive a reboot
	LeaseName  string // of the controller's Lease; empty: DefaultLeaseName
	// OrphanAge is the age at which a snapshot of this cluster that no PodSnapshot names is removed from a store that only
	// this node can see; 0: never.
	OrphanAge time.Duration
	// Now is this node's clock, for the names of snapshots; nil: time.Now. What is old is decided by the API server's
	// clock, see objects.Clock.
	Now     func() time.Time
	Metrics prometheus.Registerer // nil: none
	Logger  *slog.Logger
}

// An agent sends few requests to the API server, and some delay the start of a pod. So the client does not throttle
// them below this rate per second.
const (
	requestRate  = 200
	requestBurst = 400
)

// Cluster is the cluster that an agent's node belongs to. New makes it; it works while Run runs. It connects its parts,
// and implements agent.Cluster with them.
type Cluster struct {
	cfg      Config
	log      *slog.Logger
	mgr      manager.Manager
	stop     context.CancelFunc // tells Run to end
	objects  *objects.Objects
	names    *names.Clock
	requests *request.Requests
	starts   *start.Starts
	slumbers *slumber.Slumbers
	idle     *sleeppolicy.Policies
	judge    *age.Judge
	watcher  *rollback.Watcher
	sweeper  *sweep.Sweeper // of the stores that only this node can see
}

// New prepares an agent's work in its cluster. It opens the ledger, and sends nothing to the API server.
func New(cfg Config, node Node) (*Cluster, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	logTo(cfg.Logger)
	running, stop := context.WithCancel(context.Background()) // until Run ends; New has nothing to wait for
	c := &Cluster{cfg: cfg, log: cfg.Logger, stop: stop, names: names.NewClock(cfg.Now)}
	if err := c.build(running, node); err != nil {
		stop()
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return c, nil
}

// build makes the parts, and the controllers that they need. They live until running is done.
func (c *Cluster) build(running context.Context, node Node) (err error) {
	clock := objects.NewClock(c.cfg.Now)
	here := cache.ByObject{Field: fields.OneTermEqualSelector("spec.nodeName", c.cfg.NodeName)}
	if c.mgr, err = newManager(running, c.cfg.RestConfig, clock, here, c.log); err != nil {
		return err
	}
	if c.objects, err = objects.New(running, c.mgr, clock, c.cfg.NodeName, c.log, &corev1.Pod{}); err != nil {
		return err
	}
	c.judge = age.NewJudge(c.objects, c.log)
	lease := leaseKey(c.cfg.Namespace, c.cfg.LeaseName)
	c.watcher = rollback.NewWatcher(rollback.Config{
		Objects: c.objects, Lease: lease, Found: func() { c.sweeper.Look() }, Logger: c.log,
	}, filepath.Join(c.cfg.StateDir, lineFile))
	c.requests, err = request.New(request.Config{
		Objects: c.objects, Node: node, NodeName: c.cfg.NodeName, Names: c.names, Store: c.cfg.Store,
		StateDir: c.cfg.StateDir, Remembers: c.watcher.Check, Logger: c.log,
	})
	if err != nil {
		return err
	}
	c.starts = start.New(start.Config{
		Objects: c.objects, Node: node, NodeName: c.cfg.NodeName, Store: c.cfg.Store, Names: c.names, Now: c.cfg.Now,
		Logger: c.log,
	})
	c.sweeper = sweep.New(sweep.Config{
		Objects: c.objects, Stores: node, Judge: c.judge, Mine: node.OwnDisk, MaySweep: c.watcher.MaySweep,
		Answers: func(s *podsnapshotv1.PodSnapshot) bool {
			return s.Annotations[podsnapshotv1.AnnotationOriginNode] == c.cfg.NodeName
		},
		OwnDisk: true, Knows: c.requests.Knows, Store: c.cfg.Store, OrphanAge: c.cfg.OrphanAge, Lease: lease, Logger: c.log,
	})
	if err := measure(c.cfg.Metrics, clock, c.judge, c.watcher.Stopped); err != nil {
		return err
	}
	c.slumbers = slumber.New(slumber.Config{Objects: c.objects, Sleeps: node, Logger: c.log})
	c.idle = sleeppolicy.New(sleeppolicy.Config{Objects: c.objects, Node: node, Meter: node.Gauges(), Logger: c.log})
	return errors.Join(c.requests.Control(c.mgr), c.slumbers.Control(c.mgr), c.idle.Control(c.mgr))
}

// lineFile is the name of the file in the state directory that says how far the cluster had come, beside the
// ledger: see package rollback.
const lineFile = "kube/line"

// logTo sends the logs of libraries to the logger of this process's first agent.
func logTo(l *slog.Logger) {
	logOnce.Do(func() {
		klog.SetSlogLogger(slog.New(quiet{l.Handler()}))
		ctrllog.SetLogger(logr.FromSlogHandler(quiet{l.Handler()}))
	})
}

var logOnce sync.Once

// newManager returns a manager of controllers, which live until life is done. The clock listens to its requests. Pods
// says which pods its cache has.
func newManager(life context.Context, rc *rest.Config, clock *objects.Clock, pods cache.ByObject,
	log *slog.Logger,
) (manager.Manager, error) {
	rc = rest.CopyConfig(rc)
	rc.Wrap(clock.Listen)
	if rc.QPS == 0 {
		rc.QPS, rc.Burst = requestRate, requestBurst
	}
	return manager.New(rc, manager.Options{
		Scheme:                 scheme,
		MapperProvider:         func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper(), nil },
		Logger:                 logr.FromSlogHandler(quiet{log.Handler()}),
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		NewCache:               yieldingTo(life),
		Cache: cache.Options{
			ByObject:         map[client.Object]cache.ByObject{&corev1.Pod{}: pods},
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
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(errkind.ErrStopping) })()
	defer context.AfterFunc(ctx, c.stop)()
	if err := c.requests.Begin(life); err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	c.slumbers.Begin(life)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	for _, do := range []func(context.Context){
		c.objects.AwaitCaches, c.watcher.Run, c.sweeper.Run, c.starts.SendReports, c.idle.Run,
	} {
		work.Go(func() { do(ctx) })
	}
	err := c.mgr.Start(ctx)
	if ctx.Err() != nil {
		err = nil // the failure is a consequence of that
	}
	cancel()
	end(errkind.ErrStopping)
	work.Wait()
	c.requests.Wait()
	c.slumbers.Wait()
	if err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	return nil
}
