package duty

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/sleeppolicy"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// sleepPolicies look after SleepPolicies.
type sleepPolicies struct{ objects *objects.Objects }

// serve says in a SleepPolicy's status whether it can be used.
func (s *sleepPolicies) serve(ctx context.Context, name client.ObjectKey) (reconcile.Result, error) {
	p := new(sleepv1alpha1.SleepPolicy)
	if err := s.objects.Get(ctx, name, p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var all sleepv1alpha1.SleepPolicyList
	if err := s.objects.List(ctx, &all, client.InNamespace(p.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("read SleepPolicies of namespace %s: %w", p.Namespace, err)
	}
	ok, reason, message := sleeppolicy.Verdict(p, all.Items)
	return reconcile.Result{}, setReady(ctx, s.objects.Status(), p, &p.Status.Conditions, &p.Status.ObservedGeneration, ok,
		reason, message)
}
