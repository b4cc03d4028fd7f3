// Package duty does the duties that the cluster's controller does for all nodes: retention, the end of deletions that
// the origin node does not finish, confirmation of where snapshots come from, statuses of policies and storage configs,
// and triggers that no node answers. What it removes from stores, package sweep does.
package duty

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/age"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/removal"
	"diapause.dev/agent/kube/sightings"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// Config is what Duties work with.
type Config struct {
	Leadership *Leadership
	Objects    *objects.Objects
	Sightings  *sightings.Sightings
	Stores     Stores
	Removals   *removal.Removals
	Judge      *age.Judge
	Store      string // location of the agents' own store
	Logger     *slog.Logger
}

// Stores are the stores of the cluster as the controller sees them. *snapshots.Central implements it.
type Stores interface {
	// ProbeStore returns why the store at a location does not answer, or nil.
	ProbeStore(ctx context.Context, location string) error
	// Shared reports whether the controller sees the same store at a location as all nodes do.
	Shared(location string) bool
}

// Duties are the cluster's duties. They are done while this process leads.
type Duties struct {
	objects *objects.Objects
	log     *slog.Logger
	lead    *Leadership

	lister        *lister
	answerer      *answerer
	keeper        *keeper
	confirmer     *confirmer
	policies      *policies
	configs       *configs
	sleepPolicies *sleepPolicies

	queues queues
}

// queues are the queues of the controllers of these objects.
type queues struct{ unanswered, snapshots, confirmations, policies, configs, sleepers control.Queue }

// New returns the duties.
func New(c Config) *Duties {
	return &Duties{
		objects: c.Objects, log: c.Logger, lead: c.Leadership,
		lister:   &lister{objects: c.Objects, log: c.Logger},
		answerer: &answerer{objects: c.Objects, judge: c.Judge},
		keeper: &keeper{
			objects: c.Objects, sightings: c.Sightings, stores: c.Stores, removals: c.Removals, judge: c.Judge,
			store: c.Store, log: c.Logger,
		},
		confirmer:     &confirmer{objects: c.Objects, sightings: c.Sightings, judge: c.Judge, log: c.Logger},
		policies:      &policies{objects: c.Objects, log: c.Logger},
		configs:       &configs{objects: c.Objects, stores: c.Stores},
		sleepPolicies: &sleepPolicies{objects: c.Objects},
	}
}

// TakeOver requeues everything whenever this process begins to lead, until ctx is done.
func (d *Duties) TakeOver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.lead.begun:
		}
		d.log.Info("this controller is the leader: it does the cluster-wide tasks")
		if err := d.lookAtAll(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("objects not read", "error", err)
		}
	}
}

// duty is a reconciler that only the controller with the Lease runs.
type duty func(ctx context.Context, name client.ObjectKey) (reconcile.Result, error)

// Control sets up the controllers of the cluster's duties.
func (d *Duties) Control(ctx context.Context, mgr manager.Manager) error {
	trigger, snapshot := &podsnapshotv1.PodSnapshotManualTrigger{}, &podsnapshotv1.PodSnapshot{}
	policy, config := &podsnapshotv1.PodSnapshotPolicy{}, &podsnapshotv1.PodSnapshotStorageConfig{}
	each, q, l := &handler.EnqueueRequestForObject{}, &d.queues, d.lister
	if err := mgr.GetFieldIndexer().IndexField(ctx, snapshot, originPod, originPodOf); err != nil {
		return fmt.Errorf("index PodSnapshots: %w", err)
	}
	for _, x := range []struct {
		b    *builder.Builder
		name string
		do   duty
	}{
		{control.Controller(mgr, &q.unanswered).Watches(trigger, each), "unanswered-trigger", d.answerer.answerTrigger},
		{
			control.Controller(mgr, &q.snapshots).Watches(snapshot, each).
				Watches(policy, handler.EnqueueRequestsFromMapFunc(l.snapshotsOf)).
				Watches(&corev1.Pod{}, l.podEvents()),
			"kept-snapshot", d.keeper.expireOrWatch,
		},
		{control.Controller(mgr, &q.confirmations).Watches(snapshot, each), "confirmation", d.confirmer.confirm},
		{control.Controller(mgr, &q.policies).Watches(policy, handler.EnqueueRequestsFromMapFunc(l.policiesBeside)).
			Watches(config, handler.EnqueueRequestsFromMapFunc(l.policiesWith)).
			Watches(snapshot, handler.EnqueueRequestsFromMapFunc(policyName)), "policy", d.policies.servePolicy},
		{control.Controller(mgr, &q.configs).Watches(config, each), "storage-config", d.configs.serveConfig},
		{control.Controller(mgr, &q.sleepers).Watches(&sleepv1alpha1.SleepPolicy{},
			handler.EnqueueRequestsFromMapFunc(l.sleepPoliciesBeside)), "sleep-policy", d.sleepPolicies.serve},
	} {
		do := x.do
		err := control.Complete(x.b, x.name, func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			if !d.lead.Leading() {
				return reconcile.Result{}, nil
			}
			return do(ctx, r.NamespacedName)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lookAtAll requeues every object.
func (d *Duties) lookAtAll(ctx context.Context) error {
	for _, x := range []struct {
		list client.ObjectList
		kick *control.Queue
	}{
		{&podsnapshotv1.PodSnapshotManualTriggerList{}, &d.queues.unanswered},
		{&podsnapshotv1.PodSnapshotList{}, &d.queues.snapshots},
		{&podsnapshotv1.PodSnapshotList{}, &d.queues.confirmations},
		{&podsnapshotv1.PodSnapshotPolicyList{}, &d.queues.policies},
		{&podsnapshotv1.PodSnapshotStorageConfigList{}, &d.queues.configs},
		{&sleepv1alpha1.SleepPolicyList{}, &d.queues.sleepers},
	} {
		if err := d.objects.List(ctx, x.list); err != nil {
			return fmt.Errorf("list all: %w", err)
		}
		for _, name := range namesOf(x.list) {
			x.kick.Kick(name)
		}
	}
	return nil
}

// namesOf returns the names of the objects of a list.
func namesOf(list client.ObjectList) (out []client.ObjectKey) {
	_ = meta.EachListItem(list, func(o runtime.Object) error { // only the function could fail
		out = append(out, client.ObjectKeyFromObject(o.(client.Object)))
		return nil
	})
	return out
}
