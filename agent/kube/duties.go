package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// duty is a reconciler that only the agent with the Lease runs.
type duty func(ctx context.Context, name client.ObjectKey) (reconcile.Result, error)

// controlDuties sets up the controllers of the cluster's duties.
func (c *Cluster) controlDuties() error {
	trigger, snapshot := &podsnapshotv1.PodSnapshotManualTrigger{}, &podsnapshotv1.PodSnapshot{}
	policy, config := &podsnapshotv1.PodSnapshotPolicy{}, &podsnapshotv1.PodSnapshotStorageConfig{}
	each := &handler.EnqueueRequestForObject{}
	for _, x := range []struct {
		b    *builder.Builder
		name string
		do   duty
	}{
		{c.controller(&c.unanswered).Watches(trigger, each), "unanswered-trigger", c.answerTrigger},
		{
			c.controller(&c.keeper).Watches(snapshot, each).Watches(policy, handler.EnqueueRequestsFromMapFunc(c.snapshotsOf)),
			"kept-snapshot", c.keepSnapshot,
		},
		{c.controller(&c.policies).Watches(policy, handler.EnqueueRequestsFromMapFunc(c.policiesBeside)).
			Watches(config, handler.EnqueueRequestsFromMapFunc(c.policiesWith)).
			Watches(snapshot, handler.EnqueueRequestsFromMapFunc(policyName)), "policy", c.servePolicy},
		{c.controller(&c.configs).Watches(config, each), "storage-config", c.serveConfig},
	} {
		do := x.do
		err := c.complete(x.b, x.name, func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			if !c.leading.Load() {
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
func (c *Cluster) lookAtAll(ctx context.Context) error {
	for _, x := range []struct {
		list client.ObjectList
		kick *kicker
	}{
		{&podsnapshotv1.PodSnapshotManualTriggerList{}, &c.unanswered},
		{&podsnapshotv1.PodSnapshotList{}, &c.keeper},
		{&podsnapshotv1.PodSnapshotPolicyList{}, &c.policies},
		{&podsnapshotv1.PodSnapshotStorageConfigList{}, &c.configs},
	} {
		if err := c.client.List(ctx, x.list); err != nil {
			return fmt.Errorf("list all: %w", err)
		}
		for _, name := range namesOf(x.list) {
			x.kick.kick(name)
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
func (c *Cluster) listed(ctx context.Context, list client.ObjectList, match func(client.Object) bool,
	in ...client.ListOption,
) (out []reconcile.Request) {
	if err := c.client.List(ctx, list, in...); err != nil {
		c.log.Warn("objects not read", "error", err)
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
func (c *Cluster) snapshotsOf(ctx context.Context, policy client.Object) []reconcile.Request {
	return c.listed(ctx, &podsnapshotv1.PodSnapshotList{}, func(o client.Object) bool {
		return o.(*podsnapshotv1.PodSnapshot).Spec.PolicyName == policy.GetName()
	}, client.InNamespace(policy.GetNamespace()))
}

// policiesBeside returns all policies in a policy's namespace, including itself.
func (c *Cluster) policiesBeside(ctx context.Context, policy client.Object) []reconcile.Request {
	return c.listed(ctx, &podsnapshotv1.PodSnapshotPolicyList{}, func(client.Object) bool { return true },
		client.InNamespace(policy.GetNamespace()))
}

// policiesWith returns the policies that name a storage config.
func (c *Cluster) policiesWith(ctx context.Context, config client.Object) []reconcile.Request {
	return c.listed(ctx, &podsnapshotv1.PodSnapshotPolicyList{}, func(o client.Object) bool {
		return o.(*podsnapshotv1.PodSnapshotPolicy).Spec.StorageConfigName == config.GetName()
	})
}

// policyName returns a request to reconcile a PodSnapshot's policy.
func policyName(_ context.Context, o client.Object) []reconcile.Request {
	s := o.(*podsnapshotv1.PodSnapshot)
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.PolicyName}}}
}
