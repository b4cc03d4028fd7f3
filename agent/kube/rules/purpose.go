package rules

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"diapause.dev/agent/kube/notice"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Purpose returns what a snapshot is for, as its PodSnapshot says.
func Purpose(s *podsnapshotv1.PodSnapshot) snapshot.Purpose {
	return snapshot.Purpose(s.Annotations[podsnapshotv1.AnnotationPurpose])
}

// OfSleep reports whether a snapshot serves the pod alone that sleeps on it, or did. It is none of its policy's then:
// no other pod is restored from it, and it counts neither for retention nor for expiry.
func OfSleep(s *podsnapshotv1.PodSnapshot) bool {
	return Purpose(s) == snapshot.ForSleep && !Inherited(s)
}

// Inherited reports whether the snapshot of a sleep serves the successors of its pod.
func Inherited(s *podsnapshotv1.PodSnapshot) bool {
	return s.Annotations[podsnapshotv1.AnnotationInherited] == podsnapshotv1.Inherited
}

// Inheritable reports whether the snapshot of a sleep may serve the successors of its pod: its policy had pods saved
// when they are deleted. Group has the labels by which successors then find it.
func Inheritable(s *podsnapshotv1.PodSnapshot) (group map[string]string, ok bool) {
	v, ok := s.Annotations[podsnapshotv1.AnnotationInheritable]
	if !ok {
		return nil, false
	}
	group, err := labels.ConvertSelectorToLabelsMap(v)
	return group, err == nil
}

// SetInheritable writes into a new PodSnapshot of a sleep that it may serve successors with these labels.
func SetInheritable(s *podsnapshotv1.PodSnapshot, group map[string]string) {
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, podsnapshotv1.AnnotationInheritable, labels.Set(group).String())
}

// Inherit makes the snapshot of a sleep one that serves the successors of its pod, which is gone or ends. It reports
// whether that is allowed.
func Inherit(s *podsnapshotv1.PodSnapshot) bool {
	group, ok := Inheritable(s)
	if !ok || !OfSleep(s) {
		return false
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, podsnapshotv1.AnnotationInherited, podsnapshotv1.Inherited)
	s.Labels = group
	return true
}

// Heritage returns the snapshots of sleeps that a pod's group inherits if the pods that sleep on them are lost.
func (p NewPod) Heritage(policy *podsnapshotv1.PodSnapshotPolicy,
	all []podsnapshotv1.PodSnapshot,
) (out []*podsnapshotv1.PodSnapshot) {
	want, missing := Group(policy, p.Pod.Labels)
	for i := range all {
		s := &all[i]
		group, ok := Inheritable(s)
		if ok && len(missing) == 0 && OfSleep(s) && s.Spec.PolicyName == policy.Name && has(group, want) && Captured(s) &&
			Confirmed(s) && Replicated(s) && Asleep(s) == metav1.ConditionTrue {
			out = append(out, s)
		}
	}
	return out
}

// Asleep returns whether a pod sleeps on a snapshot of its sleep, by the last word of its node, or Unknown.
func Asleep(s *podsnapshotv1.PodSnapshot) metav1.ConditionStatus {
	if c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionAsleep); c != nil {
		return c.Status
	}
	return metav1.ConditionUnknown
}

// SetAsleep writes whether a pod sleeps on a snapshot of its sleep, and reports whether that changed anything.
func SetAsleep(s *podsnapshotv1.PodSnapshot, asleep bool) bool {
	status, reason, message := metav1.ConditionFalse, podsnapshotv1.ReasonWoke, notice.WokenFromIt
	if asleep {
		status, reason, message = metav1.ConditionTrue, podsnapshotv1.ReasonSlept, notice.SleepsOnIt
	}
	return setCondition(&s.Status.Conditions, s.Generation, podsnapshotv1.ConditionAsleep, status, reason, message)
}
