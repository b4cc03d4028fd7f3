package request

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// plans decide how pods are checkpointed, by their policies.
type plans struct {
	objects *objects.Objects
	node    reader
}

// reader reads the manifests of snapshots.
type reader interface {
	Manifest(ctx context.Context, key snapshot.Key, location string) (*storage.Manifest, error)
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

// of returns the plan of a snapshot that was requested through the node's local socket. It derives the plan from
// the pod or, if that is gone, from the manifest.
func (p *plans) of(ctx context.Context, q journal.Request) (*rules.Plan, error) {
	pod, err := p.objects.PodHere(ctx, client.ObjectKey{Namespace: q.Pod.Namespace, Name: q.Pod.Name})
	if err != nil {
		return nil, err
	}
	if pod != nil && string(pod.UID) == q.Pod.UID {
		return p.local(ctx, pod)
	}
	m, err := p.node.Manifest(ctx, q.Key, q.Store)
	if err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", q.Key, err)
	}
	o := m.Meta.Origin
	return &rules.Plan{
		Policy: podsnapshotv1.NoPolicy, Store: q.Store, ServiceAccount: o.ServiceAccount, SpecHash: o.SpecHash,
		Group: o.Group,
	}, nil
}

func (p *plans) local(ctx context.Context, pod *corev1.Pod) (*rules.Plan, error) {
	policies, find, err := p.objects.Rules(ctx, pod.Namespace, p.objects.List)
	if err != nil {
		return nil, err
	}
	return rules.PrepareLocal(pod, policies, find), nil
}
