package duty

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/sleeppolicy"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// serveSleepPolicy says in a SleepPolicy's status whether it can be used.
func (d *Duties) serveSleepPolicy(ctx context.Context, name client.ObjectKey) (reconcile.Result, error) {
	p := new(sleepv1alpha1.SleepPolicy)
	if err := d.Objects.Get(ctx, name, p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var all sleepv1alpha1.SleepPolicyList
	if err := d.Objects.List(ctx, &all, client.InNamespace(p.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("read SleepPolicies of namespace %s: %w", p.Namespace, err)
	}
	ok, reason, message := sleeppolicy.Verdict(p, all.Items)
	return reconcile.Result{}, d.setReady(ctx, p, &p.Status.Conditions, &p.Status.ObservedGeneration, ok, reason, message)
}

// sleepPoliciesBeside returns all SleepPolicies in a SleepPolicy's namespace, including itself.
func (d *Duties) sleepPoliciesBeside(ctx context.Context, policy client.Object) []reconcile.Request {
	return d.listed(ctx, &sleepv1alpha1.SleepPolicyList{}, func(client.Object) bool { return true },
		client.InNamespace(policy.GetNamespace()))
}
