package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// keepSnapshot deletes an expired PodSnapshot, finishes a deletion that the origin does not finish, and marks a
// snapshot that was lost with its node.
func (c *Cluster) keepSnapshot(ctx context.Context, name client.ObjectKey) (reconcile.Result, error) {
	s := new(podsnapshotv1.PodSnapshot)
	if err := c.client.Get(ctx, name, s); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if s.DeletionTimestamp != nil {
		if wait := originTime - time.Since(s.DeletionTimestamp.Time); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		return retryConflict(c.remove(ctx, s))
	}
	policy, err := c.policyOf(ctx, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	at, why := rules.Expiry(policy, s)
	if !at.IsZero() && !c.cfg.Now().Before(at) {
		return reconcile.Result{}, c.discard(ctx, s, why)
	}
	wait, err := c.checkOrigin(ctx, s)
	if !at.IsZero() {
		if left := at.Sub(c.cfg.Now()); wait == 0 || left < wait {
			wait = max(left, time.Second)
		}
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// policyOf returns a PodSnapshot's policy, or nil if it is gone.
func (c *Cluster) policyOf(ctx context.Context,
	s *podsnapshotv1.PodSnapshot,
) (*podsnapshotv1.PodSnapshotPolicy, error) {
	policy, name := new(podsnapshotv1.PodSnapshotPolicy), client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.PolicyName}
	if err := c.client.Get(ctx, name, policy); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read PodSnapshotPolicy %s: %w", name, err)
	}
	return policy, nil
}

// localPause is how often the node of a node-local snapshot is checked. There may be many such snapshots.
const localPause = 15 * time.Minute

// originTime is how long a snapshot's origin may take to delete it before this agent does.
const originTime = 3 * time.Second

// discard deletes exactly this version of a PodSnapshot.
func (c *Cluster) discard(ctx context.Context, s *podsnapshotv1.PodSnapshot, why string) error {
	c.log.Info("snapshot is deleted", "snapshot", keyOf(s).String(), "reason", why)
	err := c.client.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete PodSnapshot %s: %w", keyOf(s), err)
	}
	return nil
}

// checkOrigin marks a snapshot as failed if its only copy was on a node that has left the cluster. It returns when to
// check again, or 0 if the snapshot no longer depends on its node.
func (c *Cluster) checkOrigin(ctx context.Context, s *podsnapshotv1.PodSnapshot) (time.Duration, error) {
	name := s.Annotations[podsnapshotv1.AnnotationOriginNode]
	if rules.Replicated(s) || rules.Lost(s) || name == "" {
		return 0, nil
	}
	pause := watchPause
	if rules.NodeLocal(s) {
		pause = localPause
	}
	err := c.live.Get(ctx, client.ObjectKey{Name: name}, new(corev1.Node))
	if err == nil {
		return wait.Jitter(pause, 0.2), nil
	}
	if !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("read node %s: %w", name, err)
	}
	before := s.DeepCopy()
	rules.SetProgress(s, rules.Progress{Failed: fmt.Sprintf("its only copy was on node %s, which no longer exists", name)})
	err = c.client.Status().Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return conflictPause, nil
	}
	return 0, client.IgnoreNotFound(err)
}
