package request

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
)

// descriptions say of the pods that are saved what the cluster knows of them.
type descriptions struct {
	objects *objects.Objects
	jobs    *record.Jobs
	plans   *plans
}

// pod describes a pod that is saved.
func (d *descriptions) pod(ctx context.Context, ref snapshot.PodRef) (checkpoint.Description, error) {
	if plan := d.jobs.Plan(ref.UID); plan != nil {
		return d.by(ctx, ref, plan), nil
	}
	pod, err := d.objects.PodOf(ctx, ref)
	if err != nil || pod == nil {
		return checkpoint.Description{}, err
	}
	if err := initialized(pod); err != nil {
		return checkpoint.Description{}, err
	}
	plan, err := d.plans.local(ctx, pod)
	if err != nil {
		return checkpoint.Description{}, err
	}
	return d.by(ctx, ref, plan), nil
}

// workload describes a pod whose workload saves it.
func (d *descriptions) workload(ctx context.Context, ref snapshot.PodRef) (checkpoint.Description, error) {
	pod, err := d.objects.PodOf(ctx, ref)
	switch {
	case err != nil:
		return checkpoint.Description{}, err
	case pod == nil:
		return checkpoint.Description{}, rules.Refuse("pod %s may not save itself: the cluster does not know it", ref)
	}
	if err := initialized(pod); err != nil {
		return checkpoint.Description{}, err
	}
	plan, err := d.plans.prepareBy(ctx, pod, rules.PrepareWorkload)
	if err != nil {
		return checkpoint.Description{}, err
	}
	return d.by(ctx, ref, plan), nil
}

// initialized returns a refusal while a pod's init containers have not ended.
func initialized(pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodPending && len(podspec.EndingInits(pod)) > 0 {
		return rules.Refuse("pod %s is not running yet, its init containers have not ended: wait until they have",
			rules.PodKey(pod))
	}
	return nil
}

func (d *descriptions) by(ctx context.Context, ref snapshot.PodRef, p *rules.Plan) checkpoint.Description {
	return checkpoint.Description{
		Cluster: d.objects.IDs.IdentityOrNone(ctx), NamespaceUID: d.objects.IDs.NamespaceOrNone(ctx, ref.Namespace),
		ServiceAccount: p.ServiceAccount, Group: p.Group,
		SpecHash: p.SpecHash, Store: p.Store, Scope: p.Scope, Stop: p.Stop, Inheritable: p.Inheritable,
		NetAdmin: p.NetAdmin,
	}
}
