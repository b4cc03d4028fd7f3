package request

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/podspec"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/api/snapshot"
)

// Describe implements agent.Cluster.
func (rs *Requests) Describe(ctx context.Context, ref snapshot.PodRef) (checkpoint.Description, error) {
	if plan := rs.jobs.plan(ref.UID); plan != nil {
		return rs.description(ctx, ref, plan), nil
	}
	pod, err := rs.Objects.PodOf(ctx, ref)
	if err != nil || pod == nil {
		return checkpoint.Description{}, err
	}
	if err := initialized(pod); err != nil {
		return checkpoint.Description{}, err
	}
	plan, err := rs.prepareLocal(ctx, pod)
	if err != nil {
		return checkpoint.Description{}, err
	}
	return rs.description(ctx, ref, plan), nil
}

// DescribeWorkload implements agent.Cluster.
func (rs *Requests) DescribeWorkload(ctx context.Context, ref snapshot.PodRef) (checkpoint.Description, error) {
	pod, err := rs.Objects.PodOf(ctx, ref)
	switch {
	case err != nil:
		return checkpoint.Description{}, err
	case pod == nil:
		return checkpoint.Description{}, rules.Refuse("pod %s may not save itself: the cluster does not know it", ref)
	}
	if err := initialized(pod); err != nil {
		return checkpoint.Description{}, err
	}
	plan, err := rs.prepareBy(ctx, pod, rules.PrepareWorkload)
	if err != nil {
		return checkpoint.Description{}, err
	}
	return rs.description(ctx, ref, plan), nil
}

// initialized returns a refusal while a pod's init containers have not ended.
func initialized(pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodPending && len(podspec.EndingInits(pod)) > 0 {
		return rules.Refuse("pod %s is not running yet, its init containers have not ended: wait until they have",
			rules.PodKey(pod))
	}
	return nil
}

func (rs *Requests) description(ctx context.Context, ref snapshot.PodRef, p *rules.Plan) checkpoint.Description {
	return checkpoint.Description{
		Cluster: rs.Objects.IdentityOrNone(ctx), NamespaceUID: rs.Objects.NamespaceOrNone(ctx, ref.Namespace),
		ServiceAccount: p.ServiceAccount, Group: p.Group,
		SpecHash: p.SpecHash, Store: p.Store, Scope: p.Scope, Stop: p.Stop, Inheritable: p.Inheritable,
		NetAdmin: p.NetAdmin,
	}
}

// Unsaved implements agent.Cluster. It makes an event on the pod that says why.
func (rs *Requests) Unsaved(ref snapshot.PodRef, err error) {
	rs.Objects.Event(ref, snapshot.Key{}, corev1.EventTypeWarning, objects.ActionCheckpoint,
		"Failed to checkpoint the pod: "+err.Error())
}
