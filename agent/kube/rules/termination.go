package rules

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// SavedOnTermination reports whether one of the policies that select a pod has it saved when it is deleted.
func SavedOnTermination(pod *corev1.Pod, policies []podsnapshotv1.PodSnapshotPolicy) bool {
	for _, p := range Selecting(pod, policies) {
		if savesOnTermination(p) {
			return true
		}
	}
	return false
}

// PrepareTermination is Prepare for a pod that is being deleted.
func PrepareTermination(pod *corev1.Pod, policies []podsnapshotv1.PodSnapshotPolicy, find Find) (*Plan, error) {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = nil
	return Prepare(pod, policies, find)
}

// Predecessors returns those of some pods that the pod replaces, and that policy may have saved now: they have the same
// controller and group, and are within their grace periods.
func (p NewPod) Predecessors(policy *podsnapshotv1.PodSnapshotPolicy, pods []corev1.Pod) (out []corev1.Pod) {
	controller := metav1.GetControllerOf(p.Pod)
	group, missing := Group(policy, p.Pod.Labels)
	if controller == nil || len(missing) > 0 {
		return nil
	}
	for i := range pods {
		o := &pods[i]
		its := metav1.GetControllerOf(o)
		ends := o.DeletionTimestamp != nil && p.Now.Before(o.DeletionTimestamp.Time) && o.Status.Phase == corev1.PodRunning
		if ends && its != nil && its.UID == controller.UID && has(o.Labels, group) {
			out = append(out, *o)
		}
	}
	return out
}

// Saved returns nil if each of a pod's predecessors has been saved at its end. Otherwise the error is of kind
// ErrPending. All are the PodSnapshots of their group.
func Saved(predecessors []corev1.Pod, all []podsnapshotv1.PodSnapshot) error {
	for i := range predecessors {
		o := &predecessors[i]
		if !slices.ContainsFunc(all, func(s podsnapshotv1.PodSnapshot) bool { return savedAtEnd(o, &s) }) {
			return fmt.Errorf("pod %s, which this one replaces, may still be saved: %w", PodKey(o), ErrPending)
		}
	}
	return nil
}

// savedAtEnd reports whether a snapshot was captured of a pod since that has been deleted, or is of the sleep in which
// it was deleted.
func savedAtEnd(pod *corev1.Pod, s *podsnapshotv1.PodSnapshot) bool {
	began := pod.DeletionTimestamp.Time
	if pod.DeletionGracePeriodSeconds != nil {
		began = began.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	}
	of := s.Annotations[podsnapshotv1.AnnotationOriginPodUID]
	return Captured(s) && of == string(pod.UID) && (Inherited(s) || !s.CreationTimestamp.Time.Before(began))
}

const (
	// leastSave is how much time a save must have to be begun.
	leastSave = time.Second
	// A quarter of the time that is left stays for the pod's own end, in case it cannot be saved: at least leastEnd, at
	// most mostEnd.
	leastEnd, mostEnd = time.Second, 10 * time.Second
)

// TimeToSave returns how long the save of a pod may take that is being deleted. Now is by the API server's clock. If
// the rest of the pod's grace period is too short for a save, it returns a refusal.
func TimeToSave(pod *corev1.Pod, now time.Time) (time.Duration, error) {
	var left time.Duration
	if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil {
		grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		left = max(min(pod.DeletionTimestamp.Sub(now), grace), 0)
	}
	save := left - min(max(left/4, leastEnd), mostEnd)
	if save < leastSave {
		return 0, Refuse("%v of its grace period are left, and a save needs %v: give the pod a longer "+
			"terminationGracePeriodSeconds", left.Round(100*time.Millisecond), leastSave+leastEnd)
	}
	return save, nil
}

// TimeToAsk returns how long the API server may take to say whether a pod is being deleted, so that enough of its grace
// period is left to save it.
func TimeToAsk(pod *corev1.Pod) time.Duration {
	var grace time.Duration
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	return min(max(grace/3, leastEnd), mostEnd)
}
