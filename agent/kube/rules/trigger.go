package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"diapause.dev/agent/kube/notice"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Ended reports whether a trigger has its final answer.
func Ended(t *podsnapshotv1.PodSnapshotManualTrigger) bool {
	c := meta.FindStatusCondition(t.Status.Conditions, podsnapshotv1.ConditionTriggered)
	switch {
	case c == nil:
		return false
	case c.Status == metav1.ConditionTrue:
		return c.Reason == podsnapshotv1.ReasonComplete
	}
	return c.Status == metav1.ConditionFalse &&
		(c.Reason == podsnapshotv1.ReasonFailed || c.Reason == podsnapshotv1.ReasonError)
}

// Taken reports whether an agent works on a trigger.
func Taken(t *podsnapshotv1.PodSnapshotManualTrigger) bool {
	return t.Status.NodeName != "" && !Ended(t)
}

// TakenAt returns when an agent began to work on a trigger. If the clock of the agent's node is behind, that is when
// the trigger was made.
func TakenAt(t *podsnapshotv1.PodSnapshotManualTrigger) time.Time {
	made := t.CreationTimestamp.Time
	c := meta.FindStatusCondition(t.Status.Conditions, podsnapshotv1.ConditionTriggered)
	if c == nil || c.LastTransitionTime.Time.Before(made) {
		return made
	}
	return c.LastTransitionTime.Time
}

// Take marks a trigger as taken by a node's agent for one pod.
func Take(t *podsnapshotv1.PodSnapshotManualTrigger, node, podUID string) {
	t.Status.NodeName, t.Status.PodUID, t.Status.ObservedGeneration = node, podUID, t.Generation
	setTriggered(t, metav1.ConditionUnknown, podsnapshotv1.ReasonCheckpointing,
		fmt.Sprintf(notice.Checkpointing, node, t.Namespace, t.Spec.TargetPod))
}

// Wait says what a trigger that is taken waits for. It reports whether that is news.
func Wait(t *podsnapshotv1.PodSnapshotManualTrigger, message string) bool {
	return setTriggered(t, metav1.ConditionUnknown, podsnapshotv1.ReasonCheckpointing, message)
}

// Made says that a PodSnapshot was made, and what a restore of it may not notice.
func Made(name, warning string) string {
	if warning == "" {
		return fmt.Sprintf(notice.Made, name)
	}
	return notice.MadeBut.Say(name, warning)
}

// Complete answers a trigger with its snapshot, and with what a restore of it may not notice.
func Complete(t *podsnapshotv1.PodSnapshotManualTrigger, name, warning string) {
	t.Status.SnapshotCreated = &podsnapshotv1.SnapshotCreated{Name: name}
	t.Status.ObservedGeneration = t.Generation
	setTriggered(t, metav1.ConditionTrue, podsnapshotv1.ReasonComplete,
		Made(t.Namespace+"/"+name, warning))
}

// Fail answers a trigger with the reason why it has failed.
func Fail(t *podsnapshotv1.PodSnapshotManualTrigger, why string) {
	t.Status.ObservedGeneration = t.Generation
	setTriggered(t, metav1.ConditionFalse, podsnapshotv1.ReasonFailed, why)
}

func setTriggered(t *podsnapshotv1.PodSnapshotManualTrigger, status metav1.ConditionStatus, reason,
	message string,
) (changed bool) {
	return setCondition(&t.Status.Conditions, t.Generation, podsnapshotv1.ConditionTriggered, status, reason, message)
}

// InTurn orders the triggers of one pod: first those that are taken, then by age.
func InTurn(a, b *podsnapshotv1.PodSnapshotManualTrigger) int {
	if ta, tb := Taken(a), Taken(b); ta != tb {
		if ta {
			return -1
		}
		return 1
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), version(a, b), cmp.Compare(a.Name, b.Name))
}

// version compares resource versions. They give the order of creation of objects that were created in the same second
// and not changed since.
func version(a, b metav1.Object) int {
	c, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	if err != nil {
		return 0
	}
	return c
}

// First returns the trigger whose turn it is for a pod: the first one that has not ended. It returns nil if there is
// none.
func First(triggers []podsnapshotv1.PodSnapshotManualTrigger, pod string) *podsnapshotv1.PodSnapshotManualTrigger {
	var open []*podsnapshotv1.PodSnapshotManualTrigger
	for i := range triggers {
		if t := &triggers[i]; t.Spec.TargetPod == pod && t.DeletionTimestamp == nil && !Ended(t) {
			open = append(open, t)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return slices.MinFunc(open, InTurn)
}
