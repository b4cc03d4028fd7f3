package rules

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"diapause.dev/agent/kube/notice"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Decided reports whether the controller has decided that a PodSnapshot is what it says, or is not.
func Decided(s *podsnapshotv1.PodSnapshot) bool {
	return s.Annotations[podsnapshotv1.AnnotationConfirmed] != ""
}

// Confirmed reports whether a PodSnapshot is of a pod that was on the PodSnapshot's node.
func Confirmed(s *podsnapshotv1.PodSnapshot) bool {
	return s.Annotations[podsnapshotv1.AnnotationConfirmed] == podsnapshotv1.Confirmed
}

// NotConfirmed returns why the controller does not confirm a PodSnapshot. It is empty if the controller has confirmed
// it or has not decided.
func NotConfirmed(s *podsnapshotv1.PodSnapshot) string {
	if !Decided(s) || Confirmed(s) {
		return ""
	}
	return fmt.Sprintf(notice.NotConfirmed, s.Annotations[podsnapshotv1.AnnotationConfirmed])
}

// Doubted reports whether a PodSnapshot's condition Ready says that the controller does not confirm it.
func Doubted(s *podsnapshotv1.PodSnapshot) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionReady)
	return c != nil && c.Reason == podsnapshotv1.ReasonNotConfirmed
}

// SayTime is how long the controller may take to confirm a snapshot before the object that asked says what it waits
// for.
const SayTime = 2 * time.Second

// Silence returns how long the object that asked for a snapshot still says nothing about the confirmation that it waits
// for. It is 0 if it is to say so now. Now is by the clock of the origin node.
func Silence(s *podsnapshotv1.PodSnapshot, now time.Time) time.Duration {
	c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint)
	if c == nil {
		return SayTime
	}
	return min(max(SayTime-now.Sub(c.LastTransitionTime.Time), 0), SayTime)
}

// confirmTime is how long the controller may take to confirm a PodSnapshot. Nobody waits for it longer.
const confirmTime = time.Minute

// known returns nil if the pod's node knows where a snapshot comes from: it has made the snapshot, or the controller
// has confirmed it. If the controller may still confirm it, the error is of kind ErrPending. Otherwise it is a refusal.
func (p NewPod) known(s *podsnapshotv1.PodSnapshot) error {
	node, why := s.Annotations[podsnapshotv1.AnnotationOriginNode], s.Annotations[podsnapshotv1.AnnotationConfirmed]
	switch {
	case node == p.Node || Confirmed(s):
		return nil
	case why == "" && p.Now.Sub(s.CreationTimestamp.Time) < confirmTime:
		return fmt.Errorf("PodSnapshot %s/%s is not confirmed by the controller: %w", s.Namespace, s.Name, ErrPending)
	case why == "":
		why = "the controller has not looked at it, see whether it runs"
	}
	return Refuse("PodSnapshot %s/%s is not confirmed, and can be restored only on node %s: %.500s", s.Namespace, s.Name,
		node, why)
}
