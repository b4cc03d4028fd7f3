package start

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/lives"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/storage"
)

// A snapshot restores a new pod. One that has run and has lost its sandbox starts again as Kubernetes starts it. There
// are two exceptions: Diapause itself has ended the sandbox after a checkpoint, or the pod's policy asks for more.

// snapshotOfLost returns the PodSnapshot that a pod which has run is to be restored from, or nil.
func (f *finder) snapshotOfLost(ctx context.Context, newPod rules.NewPod, policy *podsnapshotv1.PodSnapshotPolicy,
	before lives.Past,
) (*podsnapshotv1.PodSnapshot, error) {
	if before.Stopped.Key.Name != "" {
		return f.namedSnapshot(ctx, newPod, before.Stopped.Key.Name)
	}
	if policy == nil || !rules.RestoresLost(policy) {
		f.tellLost(newPod.Pod, policy)
		return nil, nil
	}
	all, err := f.groupOf(ctx, newPod.Pod, policy)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s podsnapshotv1.PodSnapshot) bool {
		return s.Annotations[podsnapshotv1.AnnotationOriginPodUID] != string(newPod.Pod.UID)
	})
	for i := range all {
		all[i] = *f.objects.Newer(&all[i])
	}
	s, err := newPod.NewestOf(policy, all)
	if s == nil && err == nil {
		f.tellLost(newPod.Pod, policy)
	}
	return s, err
}

// itsOwn refuses a snapshot for a pod that has run, unless the snapshot is of this pod. If Diapause ended the pod after
// a checkpoint, it must be the snapshot of that.
func itsOwn(pod *corev1.Pod, s *podsnapshotv1.PodSnapshot, m *storage.Manifest, before lives.Past) error {
	if !before.Ran {
		return nil
	}
	if uid := before.Stopped.UID; uid != "" && m.Meta.UID != uid {
		return rules.Refuse("PodSnapshot %s is not the one after which the pod was stopped: another one has its name",
			objects.KeyOf(s))
	}
	if of := m.Meta.Origin.PodUID; of != string(pod.UID) {
		return rules.Refuse("PodSnapshot %s is of another pod: UID %.80q in the snapshot, %s here", objects.KeyOf(s), of,
			pod.UID)
	}
	return nil
}

// tellLost says in an event that a pod which has run starts anew. If a condition says that the pod was restored, it no
// longer does.
func (f *finder) tellLost(pod *corev1.Pod, policy *podsnapshotv1.PodSnapshotPolicy) {
	advice := notice.NamedSnapshot
	switch {
	case policy == nil:
	case rules.RestoresLost(policy):
		advice = fmt.Sprintf(notice.NoneOfItself, policy.Name)
	default:
		advice = fmt.Sprintf(notice.ToRestoreLost, podsnapshotv1.AnnotationOnSandboxLoss,
			podsnapshotv1.OnSandboxLossRestoreLatest, policy.Name)
	}
	f.startsAnew(pod, advice)
}
