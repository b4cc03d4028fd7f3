package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

const (
	// freshTime is how long to wait for the API server before the cache is used instead.
	freshTime = time.Second
	// lookAgain is how often a snapshot that is waited for is checked without news of it. After the API server was
	// unreachable, the cache may be silent for a while.
	lookAgain = time.Second
)

// fresh lists objects from the API server or, if that does not answer, from the cache. The cache may be behind by
// more than a pod's start takes: always for a moment, and for half a minute after the API server was unreachable.
func (c *Cluster) fresh(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	soon, cancel := context.WithTimeout(ctx, freshTime)
	defer cancel()
	if c.live.List(soon, list, opts...) == nil {
		return nil
	}
	return c.client.List(ctx, list, opts...)
}

// now returns the pod with a cached pod's name from the API server or, if that does not answer, the cached pod. If no
// such pod is on this node any more, it returns nil.
func (c *Cluster) now(ctx context.Context, cached *corev1.Pod) *corev1.Pod {
	ctx, cancel := context.WithTimeout(ctx, freshTime)
	defer cancel()
	pod := new(corev1.Pod)
	err := c.live.Get(ctx, client.ObjectKeyFromObject(cached), pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return cached
	case pod.Spec.NodeName != c.cfg.NodeName:
		return nil
	}
	return pod
}

// policyFor returns the policy that selects a pod, or nil if none does. If several do, the error is a refusal.
func (c *Cluster) policyFor(ctx context.Context, pod *corev1.Pod) (*podsnapshotv1.PodSnapshotPolicy, error) {
	var policies podsnapshotv1.PodSnapshotPolicyList
	for _, read := range []list{c.client.List, c.fresh} {
		if err := read(ctx, &policies, client.InNamespace(pod.Namespace)); err != nil {
			return nil, fmt.Errorf("read policies of namespace %s: %w", pod.Namespace, err)
		}
		if policy, err := rules.Only(pod, policies.Items); policy != nil || err != nil {
			return policy, err
		}
	}
	return nil, nil
}

// groupOf returns the PodSnapshots that have the labels of a pod's group. There may be others among them.
func (c *Cluster) groupOf(ctx context.Context, pod *corev1.Pod,
	policy *podsnapshotv1.PodSnapshotPolicy,
) ([]podsnapshotv1.PodSnapshot, error) {
	labels, missing := rules.Group(policy, pod.Labels)
	if len(missing) > 0 {
		return nil, nil
	}
	var all podsnapshotv1.PodSnapshotList
	if err := c.fresh(ctx, &all, client.InNamespace(pod.Namespace), client.MatchingLabels(labels)); err != nil {
		return nil, fmt.Errorf("read PodSnapshots of namespace %s: %w", pod.Namespace, err)
	}
	return all.Items, nil
}
