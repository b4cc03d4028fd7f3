// Package duty does the duties that the cluster's controller does for all nodes: retention, the end of deletions that
// the origin node does not finish, confirmation of where snapshots come from, statuses of policies and storage configs,
// and triggers that no node answers. What it removes from stores, package sweep does.
package duty

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

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
	Objects   *objects.Objects
	Sightings *sightings.Sightings
	Stores    Stores
	Removals  *removal.Removals
	Judge     *age.Judge
	Store     string // location of the agents' own store
	Logger    *slog.Logger
}

// Stores are the stores of the cluster as the controller sees them. The methods are those of kube.Stores.
type Stores interface {
	ProbeStore(ctx context.Context, location string) error
	Shared(location string) bool
}

// Duties are the cluster's duties. They are done between Begin and End.
type Duties struct {
	Config
	log     *slog.Logger
	leading atomic.Bool
	begun   chan struct{} // a signal that leading has begun

	// The queues of the controllers of these objects.
	unanswered, snapshots, confirmations, policies, configs, sleepers control.Queue
}

// New returns the duties, which are not begun.
func New(c Config) *Duties {
	return &Duties{Config: c, log: c.Logger, begun: make(chan struct{}, 1)}
}

// Begin has this process do the duties.
func (d *Duties) Begin() {
	d.leading.Store(true)
	select {
	case d.begun <- struct{}{}:
	default:
	}
}

// Leading reports whether this process does the duties.
func (d *Duties) Leading() bool { return d.leading.Load() }

// End is called when another process may do the duties.
func (d *Duties) End() { d.leading.Store(false) }

// TakeOver requeues everything whenever the duties begin, until ctx is done.
func (d *Duties) TakeOver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.begun:
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
func (d *Duties) Control(mgr manager.Manager) error {
	trigger, snapshot := &podsnapshotv1.PodSnapshotManualTrigger{}, &podsnapshotv1.PodSnapshot{}
	policy, config := &podsnapshotv1.PodSnapshotPolicy{}, &podsnapshotv1.PodSnapshotStorageConfig{}
	each := &handler.EnqueueRequestForObject{}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), snapshot, originPod, originPodOf); err != nil {
		return fmt.Errorf("index PodSnapshots: %w", err)
	}
	for _, x := range []struct {
		b    *builder.Builder
		name string
		do   duty
	}{
		{control.Controller(mgr, &d.unanswered).Watches(trigger, each), "unanswered-trigger", d.answerTrigger},
		{
			control.Controller(mgr, &d.snapshots).Watches(snapshot, each).
				Watches(policy, handler.EnqueueRequestsFromMapFunc(d.snapshotsOf)).
				Watches(&corev1.Pod{}, d.podEvents()),
			"kept-snapshot", d.expireOrWatch,
		},
		{control.Controller(mgr, &d.confirmations).Watches(snapshot, each), "confirmation", d.confirm},
		{control.Controller(mgr, &d.policies).Watches(policy, handler.EnqueueRequestsFromMapFunc(d.policiesBeside)).
			Watches(config, handler.EnqueueRequestsFromMapFunc(d.policiesWith)).
			Watches(snapshot, handler.EnqueueRequestsFromMapFunc(policyName)), "policy", d.servePolicy},
		{control.Controller(mgr, &d.configs).Watches(config, each), "storage-config", d.serveConfig},
		{control.Controller(mgr, &d.sleepers).Watches(&sleepv1alpha1.SleepPolicy{},
			handler.EnqueueRequestsFromMapFunc(d.sleepPoliciesBeside)), "sleep-policy", d.serveSleepPolicy},
	} {
		do := x.do
		err := control.Complete(x.b, x.name, func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			if !d.leading.Load() {
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
		{&podsnapshotv1.PodSnapshotManualTriggerList{}, &d.unanswered},
		{&podsnapshotv1.PodSnapshotList{}, &d.snapshots},
		{&podsnapshotv1.PodSnapshotList{}, &d.confirmations},
		{&podsnapshotv1.PodSnapshotPolicyList{}, &d.policies},
		{&podsnapshotv1.PodSnapshotStorageConfigList{}, &d.configs},
		{&sleepv1alpha1.SleepPolicyList{}, &d.sleepers},
	} {
		if err := d.Objects.List(ctx, x.list); err != nil {
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

// listed returns requests to reconcile the objects of a list that match.
func (d *Duties) listed(ctx context.Context, list client.ObjectList, match func(client.Object) bool,
	in ...client.ListOption,
) (out []reconcile.Request) {
	if err := d.Objects.List(ctx, list, in...); err != nil {
		d.log.Warn("objects not read", "error", err)
		return nil
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error { // only the function could fail
		if o := o.(client.Object); match(o) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
		return nil
	})
	return out
}

// snapshotsOf returns the PodSnapshots of a policy.
func (d *Duties) snapshotsOf(ctx context.Context, policy client.Object) []reconcile.Request {
	return d.listed(ctx, &podsnapshotv1.PodSnapshotList{}, func(o client.Object) bool {
		return o.(*podsnapshotv1.PodSnapshot).Spec.PolicyName == policy.GetName()
	}, client.InNamespace(policy.GetNamespace()))
}

// policiesBeside returns all policies in a policy's namespace, including itself.
func (d *Duties) policiesBeside(ctx context.Context, policy client.Object) []reconcile.Request {
	return d.listed(ctx, &podsnapshotv1.PodSnapshotPolicyList{}, func(client.Object) bool { return true },
		client.InNamespace(policy.GetNamespace()))
}

// policiesWith returns the policies that name a storage config.
func (d *Duties) policiesWith(ctx context.Context, config client.Object) []reconcile.Request {
	return d.listed(ctx, &podsnapshotv1.PodSnapshotPolicyList{}, func(o client.Object) bool {
		return o.(*podsnapshotv1.PodSnapshotPolicy).Spec.StorageConfigName == config.GetName()
	})
}

// policyName returns a request to reconcile a PodSnapshot's policy.
func policyName(_ context.Context, o client.Object) []reconcile.Request {
	s := o.(*podsnapshotv1.PodSnapshot)
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.PolicyName}}}
}
