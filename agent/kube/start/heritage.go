package start

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// heritage tells what a new pod may still inherit of the pods that it replaces. The pod waits for it.
type heritage struct {
	objects *objects.Objects
	log     *slog.Logger
}

// predecessors returns the pods that a new one replaces and that may be being saved now. Those of a Deployment are
// replaced as soon as they are deleted. If the API server does not answer for objects.AskTime, or half the time that is
// left, there are none: a pod starts all the same.
func (h *heritage) predecessors(ctx context.Context, newPod rules.NewPod,
	policy *podsnapshotv1.PodSnapshotPolicy,
) ([]corev1.Pod, error) {
	if metav1.GetControllerOf(newPod.Pod) == nil ||
		!rules.SavedOnTermination(newPod.Pod, []podsnapshotv1.PodSnapshotPolicy{*policy}) {
		return nil, nil
	}
	patience := objects.AskTime
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/2)
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var pods corev1.PodList // the cache has those of this node alone
	labels, _ := rules.Group(policy, newPod.Pod.Labels)
	err := objects.Patiently(asking, func(ctx context.Context) error {
		return h.objects.Live.List(ctx, &pods, client.InNamespace(newPod.Pod.Namespace), client.MatchingLabels(labels))
	})
	if err != nil && ctx.Err() == nil {
		h.log.Warn("a pod does not wait for the save of those that it replaces", "pod", rules.PodKey(newPod.Pod), "error",
			err)
		return nil, nil
	}
	return newPod.Predecessors(policy, pods.Items), err
}

// inherits returns an error of kind rules.ErrPending while the controller is about to have the pod's group inherit the
// snapshot of a pod that was lost in its sleep. If the API server does not answer, nobody can tell.
func (h *heritage) inherits(ctx context.Context, newPod rules.NewPod, policy *podsnapshotv1.PodSnapshotPolicy) error {
	if !rules.SavedOnTermination(newPod.Pod, []podsnapshotv1.PodSnapshotPolicy{*policy}) {
		return nil
	}
	var all podsnapshotv1.PodSnapshotList
	if err := h.objects.List(ctx, &all, client.InNamespace(newPod.Pod.Namespace)); err != nil {
		return fmt.Errorf("read PodSnapshots of namespace %s: %w", newPod.Pod.Namespace, err)
	}
	s, err := h.lost(ctx, newPod, policy, newPod.Heritage(policy, all.Items))
	if err != nil && ctx.Err() == nil {
		h.log.Warn("a pod does not wait for the snapshot of one that was lost in its sleep", "pod",
			rules.PodKey(newPod.Pod), "error", err)
	}
	if s == nil {
		return nil
	}
	return fmt.Errorf("PodSnapshot %s, of the sleep of a pod that is gone, is about to be inherited: %w", objects.KeyOf(s),
		rules.ErrPending)
}

// lost returns one of these snapshots of sleeps whose pod is gone, or nil. It reads the group's pods at once, and one
// alone only if it is not among them.
func (h *heritage) lost(ctx context.Context, newPod rules.NewPod, policy *podsnapshotv1.PodSnapshotPolicy,
	sleeps []*podsnapshotv1.PodSnapshot,
) (*podsnapshotv1.PodSnapshot, error) {
	if len(sleeps) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, objects.FreshTime)
	defer cancel()
	var pods corev1.PodList // the cache has those of this node alone
	labels, _ := rules.Group(policy, newPod.Pod.Labels)
	err := h.objects.Live.List(ctx, &pods, client.InNamespace(newPod.Pod.Namespace), client.MatchingLabels(labels))
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool)
	for i := range pods.Items {
		there[string(pods.Items[i].UID)] = true
	}
	for _, s := range sleeps {
		uid := s.Annotations[podsnapshotv1.AnnotationOriginPodUID]
		if there[uid] {
			continue
		}
		pod := new(corev1.Pod) // its labels may have been changed
		name := client.ObjectKey{Namespace: s.Namespace, Name: s.Annotations[podsnapshotv1.AnnotationOriginPod]}
		err := h.objects.Live.Get(ctx, name, pod)
		switch {
		case apierrors.IsNotFound(err), err == nil && string(pod.UID) != uid:
			return s, nil
		case err != nil:
			return nil, err
		}
	}
	return nil, nil
}
