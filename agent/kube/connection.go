package kube

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/request"
	"diapause.dev/agent/kube/slumber"
	"diapause.dev/agent/kube/start"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/restore"
	"diapause.dev/agent/sleep"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
)

// Connection is what a node knows of its cluster before the parts of its agent are made. These parts get Services of
// it, which ask the cluster and keep what is reported to it. New makes the rest, from the connection and these parts.
type Connection struct {
	cfg      Config
	log      *slog.Logger
	mgr      manager.Manager
	life     context.Context         // of checkpoints and other work that is requested in the cluster
	end      context.CancelCauseFunc // ends life
	stop     context.CancelFunc      // has the manager's caches be waited for no longer
	clock    *objects.Clock
	objects  *objects.Objects
	names    *names.Clock
	reports  *request.Reports
	saves    *request.Saves
	reporter *start.Reporter
	news     *slumber.News
}

// Connect prepares an agent's work in its cluster. Earlier are the requests in the agent's journal, oldest first. It
// opens the ledger, and sends nothing to the API server.
func Connect(cfg Config, earlier []journal.Request) (*Connection, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	logTo(cfg.Logger)
	running, stop := context.WithCancel(context.Background())  // until Run ends; Connect has nothing to wait for
	life, end := context.WithCancelCause(context.Background()) // until Run ends, too, or longer
	c := &Connection{
		cfg: cfg, log: cfg.Logger, life: life, end: end, stop: stop, clock: objects.NewClock(cfg.Now),
		names: names.NewClock(cfg.Now), news: slumber.NewNews(),
	}
	if err := c.build(running, earlier); err != nil {
		c.Close()
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return c, nil
}

// build makes the parts that need no part of the agent. They live until running is done.
func (c *Connection) build(running context.Context, earlier []journal.Request) (err error) {
	here := cache.ByObject{Field: fields.OneTermEqualSelector("spec.nodeName", c.cfg.NodeName)}
	if c.mgr, err = newManager(running, c.cfg.RestConfig, c.clock, here, c.log); err != nil {
		return err
	}
	if c.objects, err = objects.New(running, c.mgr, c.clock, c.cfg.NodeName, c.log, &corev1.Pod{}); err != nil {
		return err
	}
	c.reports, err = request.OpenReports(request.ReportsConfig{
		Objects: c.objects, Names: c.names, StateDir: c.cfg.StateDir, Earlier: earlier, Life: c.life, Logger: c.log,
	})
	if err != nil {
		return err
	}
	c.saves = request.NewSaves(c.objects, c.reports, c.names)
	c.reporter = start.NewReporter(c.objects, c.cfg.Now, c.log)
	return nil
}

// Close ends what Connect has begun, unless Run of a Cluster does.
func (c *Connection) Close() {
	c.stop()
	c.end(nil)
}

// Services are what the parts of an agent ask their cluster, and tell it. Each part gets its own interface. The zero
// value is that of a node without a cluster: all fields are nil.
type Services struct {
	Stores      snapshots.Cluster
	Restores    restore.Cluster
	Checkpoints checkpoint.Cluster
	Sleeps      sleep.Cluster
	Lives       lives.Cluster
	// Changed reports each step of every request, in order. It does not block.
	Changed func(r journal.Request)
}

// Services returns what the parts of the agent ask the cluster, and tell it.
func (c *Connection) Services() Services {
	return Services{
		Stores: stores{request.NewRemover(c.objects, c.cfg.NodeName, c.log), c.objects, c.cfg.Store}, Restores: c.reporter,
		Checkpoints: c.saves, Sleeps: sleeps{c.news, c.reports}, Lives: c.objects, Changed: c.reports.Changed,
	}
}

// stores implements snapshots.Cluster.
type stores struct {
	*request.Remover
	objects *objects.Objects
	own     string // location of the agents' own store
}

// Stores implements snapshots.Cluster. The agents' own store comes first.
func (s stores) Stores(ctx context.Context) ([]string, error) { return s.objects.Stores(ctx, s.own) }

// Referred implements snapshots.Cluster.
func (s stores) Referred(ctx context.Context) ([]string, error) {
	return s.objects.Referred(ctx, s.own)
}

// sleeps implements sleep.Cluster: the pod's condition and its PodSnapshots are looked at again.
type sleeps struct {
	*slumber.News
	reports *request.Reports
}

// Slept implements sleep.Cluster.
func (s sleeps) Slept(pod snapshot.PodRef) {
	s.News.Slept(pod)
	s.reports.SleepChanged(pod)
}

// Woke implements sleep.Cluster.
func (s sleeps) Woke(pod snapshot.PodRef, cause string, took time.Duration) {
	s.News.Woke(pod, cause, took)
	s.reports.SleepChanged(pod)
}

// WakeFailed implements sleep.Cluster.
func (s sleeps) WakeFailed(pod snapshot.PodRef, err error) {
	s.News.WakeFailed(pod, err)
	s.reports.SleepChanged(pod)
}
