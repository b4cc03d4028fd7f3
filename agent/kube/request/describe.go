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
		return rs.description(ctx, plan), nil
	}
	pod, err := rs.Objects.PodOf(ctx, ref)
	if err != nil || pod == nil {
		return checkpoint.Description{}, err
	}
	if pod.Status.Phase == corev1.PodPending && len(podspec.EndingInits(pod)) > 0 {
		return checkpoint.Description{}, rules.Refuse("pod %s is not running yet, its init containers have not ended: wait "+
			"until they have", ref)
	}
	plan, err := rs.prepareLocal(ctx, pod)
	if err != nil {
		return checkpoint.Description{}, err
	}
	return rs.description(ctx, plan), nil
}

func (rs *Requests) description(ctx context.Context, p *rules.Plan) checkpoint.Description {
	return checkpoint.Description{
		Cluster: rs.Objects.IdentityOrNone(ctx), ServiceAccount: p.ServiceAccount, Group: p.Group,
		SpecHash: p.SpecHash, Store: p.Store, Scope: p.Scope, Stop: p.Stop,
	}
}

// Unsaved implements agent.Cluster. It makes an event on the pod that says why.
func (rs *Requests) Unsaved(ref snapshot.PodRef, err error) {
	rs.Objects.Event(ref, snapshot.Key{}, corev1.EventTypeWarning, objects.ActionCheckpoint,
		"Failed to checkpoint the pod: "+err.Error())
}
