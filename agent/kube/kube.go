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

// Cluster is the cluster's side of a node's agent. New makes it; it works while Run runs. It connects its parts.
type Cluster struct {
	conn     *Connection
	requests *request.Requests
	starts   *start.Starts
	slumbers *slumber.Slumbers
	idle     *sleeppolicy.Policies
	watcher  *rollback.Watcher
	sweeper  *sweep.Sweeper // of the stores that only this node can see
}

// New makes the cluster's side of an agent from its connection and the agent's parts. It sends nothing to the API
// server.
func New(conn *Connection, n Node) (*Cluster, error) {
	cfg, o := conn.cfg, conn.objects
	lease := leaseKey(cfg.Namespace, cfg.LeaseName)
	bell := sweep.NewBell()
	watcher := rollback.NewWatcher(rollback.Config{
		Objects: o, Lease: lease, Found: bell.Ring, Logger: cfg.Logger,
	}, filepath.Join(cfg.StateDir, lineFile))
	judge := age.NewJudge(o, cfg.Logger)
	c := &Cluster{
		conn: conn, idle: n.Policies.Policies, watcher: watcher,
		requests: request.New(request.Config{
			Objects: o, Reports: conn.reports, NodeName: cfg.NodeName, Names: conn.names, Store: cfg.Store,
			Node: request.Node{
				Checkpoints: n.Checkpoints, Snapshots: n.Snapshots, Facts: n.Facts, Needs: n.Needs, Ended: n.Ended,
				Asleep: n.Waker.AsleepPod,
			},
			Remembers: watcher.Check, Logger: cfg.Logger,
		}),
		starts: start.New(start.Config{
			Objects: o, Reporter: conn.reporter, Snapshots: n.Snapshots, Facts: n.Facts, NodeName: cfg.NodeName,
			Store: cfg.Store, Names: conn.names, Logger: cfg.Logger,
		}),
		slumbers: slumber.New(slumber.Config{
			Objects: o, News: conn.news, Sleeps: n.Sleeps, Waker: n.Waker, Waiting: n.Waiting, Life: conn.life,
			Logger: cfg.Logger,
		}),
		sweeper: sweep.New(sweep.Config{
			Objects: o, Stores: n.Snapshots, Judge: judge, Mine: n.Snapshots.OwnDisk, MaySweep: watcher.MaySweep, Bell: bell,
			Answers: func(s *podsnapshotv1.PodSnapshot) bool {
				return s.Annotations[podsnapshotv1.AnnotationOriginNode] == cfg.NodeName
			},
			OwnDisk: true, Knows: conn.reports.Knows, Store: cfg.Store, OrphanAge: cfg.OrphanAge, Lease: lease,
			Logger: cfg.Logger,
		}),
	}
	err := measure(cfg.Metrics, conn.clock, judge, watcher.Stopped)
	if err == nil {
		err = errors.Join(c.requests.Control(conn.mgr), c.slumbers.Control(conn.mgr), c.idle.Control(conn.mgr))
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return c, nil
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
	end := c.conn.end
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(errkind.ErrStopping) })()
	defer context.AfterFunc(ctx, c.conn.stop)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	for _, do := range []func(context.Context){
		c.conn.objects.AwaitCaches, c.watcher.Run, c.sweeper.Run, c.conn.reporter.Run, c.idle.Run,
	} {
		work.Go(func() { do(ctx) })
	}
	c.conn.reports.Begin()
	err := c.conn.mgr.Start(ctx)
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
