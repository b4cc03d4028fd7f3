package start

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// finder finds the PodSnapshots that pods are restored from.
type finder struct {
	objects  *objects.Objects
	heritage *heritage
	// startsAnew says that a pod which has run starts anew: see reporter.startsAnew.
	startsAnew func(pod *corev1.Pod, message string)
}

// wanted returns the name of the PodSnapshot that a pod asks for. In another namespace, it is "namespace/name". It is
// empty if the pod asks for none.
func wanted(pod *corev1.Pod) string {
	if name := pod.Annotations[podsnapshotv1.AnnotationSnapshotName]; name != "" {
		return name
	}
	return strings.TrimPrefix(pod.Annotations[podsnapshotv1.AnnotationRestoreFrom], pod.Namespace+"/")
}

// namedSnapshot returns the PodSnapshot that a pod names.
func (f *finder) namedSnapshot(ctx context.Context, newPod rules.NewPod,
	name string,
) (*podsnapshotv1.PodSnapshot, error) {
	k := snapshot.Key{Namespace: newPod.Pod.Namespace, Name: name}
	if k.Validate() != nil {
		return nil, newPod.Named(name, nil)
	}
	s, err := f.objects.PodSnapshot(ctx, k)
	// The cache may be behind: the pod may start right after its snapshot was made.
	if err == nil && (s == nil || !rules.Captured(s) || !rules.Decided(s) || !rules.Replicated(s) && !rules.NodeLocal(s)) {
		s = new(podsnapshotv1.PodSnapshot)
		if err = f.objects.Live.Get(ctx, objects.Named(k), s); apierrors.IsNotFound(err) {
			s, err = nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read PodSnapshot %s: %w", k, err)
	}
	return s, newPod.Named(name, s)
}

// newestSnapshot returns the newest PodSnapshot of a pod's group. While a pod that this one replaces may still be
// saved, the error is of kind rules.ErrPending.
func (f *finder) newestSnapshot(ctx context.Context, newPod rules.NewPod,
	policy *podsnapshotv1.PodSnapshotPolicy,
) (*podsnapshotv1.PodSnapshot, error) {
	// Before the snapshots: who is gone by then was saved or never is.
	ending, err := f.heritage.predecessors(ctx, newPod, policy)
	if err != nil {
		return nil, err
	}
	all, err := f.groupOf(ctx, newPod.Pod, policy)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i] = *f.objects.Newer(&all[i])
	}
	if err := rules.Saved(ending, all); err != nil {
		return nil, err
	}
	if err := f.heritage.inherits(ctx, newPod, policy); err != nil {
		return nil, err
	}
	s, err := newPod.NewestOf(policy, all)
	if s == nil && err == nil {
		f.tellNearest(newPod, policy, all)
	}
	return s, err
}

// tellNearest makes an event on a pod that starts cold. It names the most similar snapshot, and what differs.
func (f *finder) tellNearest(newPod rules.NewPod, policy *podsnapshotv1.PodSnapshotPolicy,
	all []podsnapshotv1.PodSnapshot,
) {
	s, differences := newPod.Nearest(policy, all)
	if s == nil {
		return
	}
	f.objects.Events.Pod(objects.RefOf(newPod.Pod), objects.KeyOf(s), notice.NoneFits, policy.Name, objects.KeyOf(s),
		strings.Join(differences, "; "))
}

// groupOf returns the PodSnapshots that have the labels of a pod's group. There may be others among them.
func (f *finder) groupOf(ctx context.Context, pod *corev1.Pod,
	policy *podsnapshotv1.PodSnapshotPolicy,
) ([]podsnapshotv1.PodSnapshot, error) {
	labels, missing := rules.Group(policy, pod.Labels)
	if len(missing) > 0 {
		return nil, nil
	}
	var all podsnapshotv1.PodSnapshotList
	if err := f.objects.Fresh(ctx, &all, client.InNamespace(pod.Namespace), client.MatchingLabels(labels)); err != nil {
		return nil, fmt.Errorf("read PodSnapshots of namespace %s: %w", pod.Namespace, err)
	}
	return all.Items, nil
}
