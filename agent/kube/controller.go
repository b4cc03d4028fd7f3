package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"diapause.dev/agent/kube/age"
	"diapause.dev/agent/kube/duty"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/removal"
	"diapause.dev/agent/kube/rollback"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/kube/sightings"
	"diapause.dev/agent/kube/sweep"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// ControllerConfig says which cluster a controller belongs to.
type ControllerConfig struct {
	RestConfig *rest.Config
	Name       string // of this controller, which no other has
	NodeName   string // the cluster's name for the node that it runs on
	Namespace  string // namespace of the Lease
	LeaseName  string // of the Lease that makes one controller do the cluster's duties; empty: defaultLeaseName
	Store      string // location of the agents' own store
	// OrphanAge is the age at which a snapshot of this cluster that no PodSnapshot names is removed from its store; 0:
	// never.
	OrphanAge time.Duration
	// Now is this node's clock; nil: time.Now. What is old is decided by the API server's clock, see objects.Clock.
	Now     func() time.Time
	Metrics prometheus.Registerer // nil: none
	Logger  *slog.Logger
}

// Stores are the stores of a cluster as its controller sees them. snapshots.Central implements it.
type Stores interface {
	duty.Stores
	sweep.Stores
	rollback.Notes
}

// Controller does for all nodes what no node's agent may do. Of several controllers one works, the holder of the Lease.
// NewController makes it; it works while Run runs.
type Controller struct {
	cfg     ControllerConfig
	log     *slog.Logger
	mgr     manager.Manager
	stop    context.CancelFunc // tells Run to end
	objects *objects.Objects
	lead    *duty.Leadership
	duties  *duty.Duties
	keeper  *rollback.Keeper
	sweeper *sweep.Sweeper // of the stores that all nodes see
}

// NewController prepares a controller's work. It sends nothing to the API server.
func NewController(cfg ControllerConfig, stores Stores) (*Controller, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	logTo(cfg.Logger)
	running, stop := context.WithCancel(context.Background()) // until Run ends; NewController waits for nothing
	c := &Controller{cfg: cfg, log: cfg.Logger, stop: stop, lead: duty.NewLeadership()}
	if err := c.build(running, stores); err != nil {
		stop()
		return nil, fmt.Errorf("controller: %w", err)
	}
	return c, nil
}

// build makes the parts, and the controllers that they need. They live until running is done.
func (c *Controller) build(running context.Context, stores Stores) (err error) {
	clock := objects.NewClock(c.cfg.Now)
	if c.mgr, err = newManager(running, c.cfg.RestConfig, clock, sightings.Cached(), c.log); err != nil {
		return err
	}
	if c.objects, err = objects.New(running, c.mgr, clock, c.cfg.NodeName, c.log, &corev1.Pod{}); err != nil {
		return err
	}
	judge := age.NewJudge(c.objects, c.log)
	seen := sightings.New(c.objects.Client, c.objects.Live)
	if err := seen.Watch(running, c.mgr.GetCache()); err != nil {
		return err
	}
	lease := leaseKey(c.cfg.Namespace, c.cfg.LeaseName)
	mine := func(location string) bool { return c.lead.Leading() && stores.Shared(location) }
	bell := sweep.NewBell()
	c.keeper = rollback.NewKeeper(rollback.KeeperConfig{
		Config: rollback.Config{
			Objects: c.objects, Lease: lease, Logger: c.log,
			Found: bell.Ring, // what came back with the backup may have no data
		},
		Stores: stores, Store: c.cfg.Store, Mine: mine, Leads: c.lead.Leading,
	})
	if err := c.keeper.Watch(running, c.mgr.GetCache()); err != nil {
		return err
	}
	c.duties = duty.New(duty.Config{
		Leadership: c.lead, Objects: c.objects, Sightings: seen, Stores: stores,
		Removals: removal.New(c.objects, c.remover(stores), c.log), Judge: judge, Store: c.cfg.Store, Logger: c.log,
	})
	c.sweeper = sweep.New(sweep.Config{
		Objects: c.objects, Stores: stores, Judge: judge, Mine: mine, MaySweep: c.keeper.MaySweep,
		Bell:    bell,
		Answers: func(*podsnapshotv1.PodSnapshot) bool { return true },
		Knows:   func(snapshot.Key) bool { return false },
		Store:   c.cfg.Store, OrphanAge: c.cfg.OrphanAge, Lease: lease, Logger: c.log,
	})
	if err := measure(c.cfg.Metrics, clock, judge, c.keeper.Stopped); err != nil {
		return err
	}
	return c.duties.Control(running, c.mgr)
}

// remover returns what removes a snapshot's data from a store. Where a PodSnapshot says that its data is, its node has
// chosen: nothing is removed that another cluster has made, unless this cluster has taken that over. Nothing is removed
// either if another cluster has taken over this cluster's snapshots.
func (c *Controller) remover(stores Stores) removal.Data {
	return func(ctx context.Context, k snapshot.Key, uid, location string) error {
		its := snapshots.Removal{
			ID: snapshots.ID{Key: k, UID: uid}, From: snapshots.FromStore, Location: location, InUse: snapshots.InUseIgnored,
		}
		if err := c.keeper.Owns(ctx, location); err != nil {
			return err
		}
		m, err := stores.StoredManifest(ctx, k, location)
		if err != nil { // also if it is damaged
			return stores.Remove(ctx, its)
		}
		ours, err := c.ours(ctx, stores, &m.Meta, location)
		if err != nil {
			return err
		}
		if !ours {
			c.log.Warn("a snapshot is left in its store: another cluster has made it", "snapshot", k.String(), "store", location,
				"cluster", m.Meta.Origin.Cluster)
			return nil
		}
		return stores.Remove(ctx, its)
	}
}

// ours reports whether this cluster has made a snapshot, or has taken it over: its PodSnapshot says so, and so does the
// store.
func (c *Controller) ours(ctx context.Context, stores Stores, m *snapshot.Meta, location string) (bool, error) {
	own, err := c.objects.IDs.Identity(ctx)
	of := m.Origin.Cluster
	if err != nil || of == "" || of == own {
		return true, err
	}
	s := new(podsnapshotv1.PodSnapshot)
	if err := c.objects.Live.Get(ctx, objects.Named(m.Key), s); err != nil || !rules.Adopted(s, m.Origin) {
		return false, client.IgnoreNotFound(err)
	}
	by, err := rollback.TakenBy(ctx, stores, location, of)
	return by == own, err
}

// Run works until ctx is done. It returns when everything that it started has ended, and the Lease is given back.
func (c *Controller) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.stop)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	for _, do := range []func(context.Context){
		c.objects.AwaitCaches, c.compete, c.duties.TakeOver, c.keeper.Run, c.sweeper.Run,
	} {
		work.Go(func() { do(ctx) })
	}
	err := c.mgr.Start(ctx)
	if ctx.Err() != nil {
		err = nil // the failure is a consequence of that
	}
	cancel()
	work.Wait()
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	return nil
}
