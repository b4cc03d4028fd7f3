package request

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// plans decide how pods are checkpointed, by their policies.
type plans struct {
	objects *objects.Objects
}

// prepare returns the plan for a pod's checkpoint, or a refusal.
func (p *plans) prepare(ctx context.Context, pod *corev1.Pod) (*rules.Plan, error) {
	return p.prepareBy(ctx, pod, rules.Prepare)
}

// termination returns the plan for the checkpoint of a pod that is told to end, or a refusal.
func (p *plans) termination(ctx context.Context, pod *corev1.Pod) (*rules.Plan, error) {
	return p.prepareBy(ctx, pod, rules.PrepareTermination)
}

// prepareBy returns the plan that a rule makes for a pod's checkpoint, or a refusal.
func (p *plans) prepareBy(ctx context.Context, pod *corev1.Pod,
	rule func(*corev1.Pod, []podsnapshotv1.PodSnapshotPolicy, rules.Find) (*rules.Plan, error),
) (*rules.Plan, error) {
	policies, find, err := p.objects.Rules(ctx, pod.Namespace, p.objects.List)
	if err != nil {
		return nil, err
	}
	plan, err := rule(pod, policies, find)
	if !rules.Refused(err) {
		return plan, err
	}
	policies, find, err = p.objects.Rules(ctx, pod.Namespace, p.objects.Fresh) // the cache may be behind
	if err != nil {
		return nil, err
	}
	return rule(pod, policies, find)
}

// local returns the plan of a snapshot of a pod that was requested through the node's local socket.
func (p *plans) local(ctx context.Context, pod *corev1.Pod) (*rules.Plan, error) {
	policies, find, err := p.objects.Rules(ctx, pod.Namespace, p.objects.List)
	if err != nil {
		return nil, err
	}
	return rules.PrepareLocal(pod, policies, find), nil
}
