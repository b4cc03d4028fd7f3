package rules

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// SavedOnTermination reports whether one of the policies that select a pod has it saved when it is deleted.
func SavedOnTermination(pod *corev1.Pod, policies []podsnapshotv1.PodSnapshotPolicy) bool {
	for _, p := range Selecting(pod, policies) {
		if p.Annotations[podsnapshotv1.AnnotationOnTermination] == podsnapshotv1.OnTerminationCheckpoint {
			return true
		}
	}
	return false
}

// checkOnTermination returns a refusal if a policy's annotation about termination has a value that is not known.
func checkOnTermination(p *podsnapshotv1.PodSnapshotPolicy) error {
	v, ok := p.Annotations[podsnapshotv1.AnnotationOnTermination]
	if !ok || v == podsnapshotv1.OnTerminationCheckpoint {
		return nil
	}
	return Refuse("annotation %s is %.80q, and no pod is saved when it ends: its only value is %q, or remove it",
		podsnapshotv1.AnnotationOnTermination, v, podsnapshotv1.OnTerminationCheckpoint)
}

// PrepareTermination is Prepare for a pod that is being deleted.
func PrepareTermination(pod *corev1.Pod, policies []podsnapshotv1.PodSnapshotPolicy, find Find) (*Plan, error) {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = nil
	return Prepare(pod, policies, find)
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
