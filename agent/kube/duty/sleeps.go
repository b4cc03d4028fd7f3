package duty

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// serveSleep decides what becomes of the snapshot of a sleep once its pod is gone. If the pod slept on it, by the last
// word of its node, and its policy has pods saved when they are deleted, the pod's successors inherit it: its node was
// lost, or the pod was deleted by force. Otherwise nobody can use it, and it is deleted.
func (k *keeper) serveSleep(ctx context.Context, s *podsnapshotv1.PodSnapshot) (reconcile.Result, error) {
	origin := client.ObjectKey{Namespace: s.Namespace, Name: s.Annotations[podsnapshotv1.AnnotationOriginPod]}
	gone, err := k.sightings.Gone(ctx, origin, s.Annotations[podsnapshotv1.AnnotationOriginPodUID])
	if err != nil {
		return reconcile.Result{}, err
	}
	if !gone {
		again, err := k.checkOrigin(ctx, s)
		return reconcile.Result{RequeueAfter: again}, err
	}
	useless, err := k.useless(ctx, s)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case useless:
		return reconcile.Result{}, discard(ctx, k.objects, k.log, s, "it is of a sleep, and its pod is gone")
	case rules.Asleep(s) == metav1.ConditionTrue && rules.Confirmed(s) && rules.Replicated(s):
		return control.RetryConflict(k.inherit(ctx, s))
	}
	_, err = k.checkOrigin(ctx, s)
	return reconcile.Result{RequeueAfter: wait.Jitter(watchPause, 0.2)}, err
}

// useless reports whether the snapshot of a sleep will never serve a successor of its pod, which is gone.
func (k *keeper) useless(ctx context.Context, s *podsnapshotv1.PodSnapshot) (bool, error) {
	_, inheritable := rules.Inheritable(s)
	switch {
	case !inheritable, rules.Asleep(s) == metav1.ConditionFalse, rules.Decided(s) && !rules.Confirmed(s):
		return true, nil
	case rules.Asleep(s) == metav1.ConditionTrue:
		return false, nil
	}
	return k.objects.NodeGone(ctx, s.Annotations[podsnapshotv1.AnnotationOriginNode]) // or it will say whether it sleeps
}

// inherit makes the snapshot of a sleep one that serves its pod's successors.
func (k *keeper) inherit(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	before := s.DeepCopy()
	if !rules.Inherit(s) {
		return nil
	}
	k.log.Info("the snapshot of a sleep serves the successors of its pod", "snapshot", objects.KeyOf(s).String())
	err := k.objects.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("PodSnapshot %s: %w", objects.KeyOf(s), err)
	}
	return nil
}
