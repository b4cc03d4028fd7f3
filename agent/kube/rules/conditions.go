package rules

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/notice"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Progress is how far the checkpoint behind a PodSnapshot has come.
type Progress struct {
	Spooled    bool   // can be restored on its node
	Replicated bool   // in the store
	OwnDisk    bool   // the store is a disk of its node, which other nodes cannot see
	Waiting    string // why the last attempt to store it failed, if it did
	Failed     string // why there is no snapshot, or no longer one
	NotInStore string // why it will never be in the store although it is on its node
	StoredAt   string // location of the store
	OriginNode string
	Warning    string // what a restore may not notice
}

// Warning returns what a restore of a snapshot may not notice, or nothing.
func Warning(s *podsnapshotv1.PodSnapshot) string {
	c := meta.FindStatusCondition(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint)
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	warning, _ := strings.CutPrefix(c.Message, notice.Captured)
	return strings.TrimPrefix(warning, "; ")
}

// SetProgress writes a snapshot's progress into its status, and reports whether that changed anything. Only a failure
// takes back a success. If a snapshot cannot get into the store, its condition keeps saying so until the snapshot is
// there. A snapshot is not Ready before the controller has confirmed it. Of one whose data is lost nothing changes.
func SetProgress(s *podsnapshotv1.PodSnapshot, p Progress) (changed bool) {
	return !DataLost(s) && setProgress(s, p)
}

func setProgress(s *podsnapshotv1.PodSnapshot, p Progress) (changed bool) {
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		if setCondition(&s.Status.Conditions, s.Generation, kind, status, reason, message) {
			changed = true
		}
	}
	if p.Failed != "" {
		if !meta.IsStatusConditionTrue(s.Status.Conditions, podsnapshotv1.ConditionCheckpoint) {
			set(podsnapshotv1.ConditionCheckpoint, metav1.ConditionFalse, podsnapshotv1.ReasonFailed, p.Failed)
		}
		set(podsnapshotv1.ConditionStorageReplicated, metav1.ConditionFalse, podsnapshotv1.ReasonFailed, p.Failed)
		set(podsnapshotv1.ConditionReady, metav1.ConditionFalse, podsnapshotv1.ReasonFailed, p.Failed)
		return changed
	}
	awaiting := func(kind, message string) {
		final := kind == podsnapshotv1.ConditionStorageReplicated && (NotInStore(s) != "" || NodeLocal(s))
		if !final && !meta.IsStatusConditionTrue(s.Status.Conditions, kind) {
			set(kind, metav1.ConditionFalse, podsnapshotv1.ReasonAwaitingCheckpoint, message)
		}
	}
	if !p.Spooled {
		awaiting(podsnapshotv1.ConditionCheckpoint, notice.BeingCaptured)
		awaiting(podsnapshotv1.ConditionStorageReplicated, notice.BeingCaptured)
		awaiting(podsnapshotv1.ConditionReady, notice.BeingCaptured)
		return changed
	}
	if p.Warning != "" {
		set(podsnapshotv1.ConditionCheckpoint, metav1.ConditionTrue, podsnapshotv1.ReasonSucceeded,
			notice.Captured+"; "+p.Warning)
	} else if Warning(s) == "" {
		set(podsnapshotv1.ConditionCheckpoint, metav1.ConditionTrue, podsnapshotv1.ReasonSucceeded, notice.Captured)
	}
	switch {
	case p.Replicated && p.OwnDisk:
		set(podsnapshotv1.ConditionStorageReplicated, metav1.ConditionFalse, podsnapshotv1.ReasonNodeLocal,
			fmt.Sprintf(notice.StoredOnDisk, p.OriginNode))
		changed = setStored(s, p.StoredAt) || changed
	case p.Replicated:
		set(podsnapshotv1.ConditionStorageReplicated, metav1.ConditionTrue, podsnapshotv1.ReasonSucceeded,
			notice.InStore)
		changed = setStored(s, p.StoredAt) || changed
	case p.NotInStore != "":
		set(podsnapshotv1.ConditionStorageReplicated, metav1.ConditionFalse, podsnapshotv1.ReasonFailed, p.NotInStore)
	default:
		message := fmt.Sprintf(notice.Replicating, p.OriginNode)
		if p.Waiting != "" {
			message += fmt.Sprintf(notice.AttemptFailed, p.Waiting)
		}
		awaiting(podsnapshotv1.ConditionStorageReplicated, message)
	}
	if status, reason, message := readiness(s); status == metav1.ConditionTrue || !Ready(s) {
		set(podsnapshotv1.ConditionReady, status, reason, message)
	}
	return changed
}

// SetDataLost says in a snapshot's status that the store does not have its data any more. It reports whether that
// changes anything.
func SetDataLost(s *podsnapshotv1.PodSnapshot) (changed bool) {
	why := fmt.Sprintf(notice.DataLost, StoredAt(s))
	for _, kind := range []string{podsnapshotv1.ConditionStorageReplicated, podsnapshotv1.ConditionReady} {
		if setCondition(&s.Status.Conditions, s.Generation, kind, metav1.ConditionFalse, podsnapshotv1.ReasonDataLost, why) {
			changed = true
		}
	}
	return changed
}

// SetDataFound takes back what SetDataLost has said. OwnDisk says that the store is a disk of the origin node.
func SetDataFound(s *podsnapshotv1.PodSnapshot, ownDisk bool) (changed bool) {
	return DataLost(s) && setProgress(s, Progress{
		Spooled: true, Replicated: true, OwnDisk: ownDisk, OriginNode: s.Annotations[podsnapshotv1.AnnotationOriginNode],
	})
}

// readiness returns what the condition Ready of a snapshot that was captured says.
func readiness(s *podsnapshotv1.PodSnapshot) (status metav1.ConditionStatus, reason, message string) {
	switch {
	case Confirmed(s):
		return metav1.ConditionTrue, podsnapshotv1.ReasonAllSnapshotsAvailable, notice.CanBeRestored
	case Decided(s):
		return metav1.ConditionFalse, podsnapshotv1.ReasonNotConfirmed, fmt.Sprintf(notice.OnlyThere,
			s.Annotations[podsnapshotv1.AnnotationOriginNode], NotConfirmed(s))
	}
	return metav1.ConditionFalse, podsnapshotv1.ReasonAwaitingConfirmation, notice.AwaitsController
}

func setStored(s *podsnapshotv1.PodSnapshot, location string) bool {
	if s.Status.StorageStatus != nil || location == "" {
		return false
	}
	s.Status.StorageStatus = Stored(location, s.Namespace, s.Name)
	return true
}

// setCondition sets a condition, and reports whether that changed it.
func setCondition(conditions *[]metav1.Condition, generation int64, kind string, status metav1.ConditionStatus, reason,
	message string,
) bool {
	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: Message(message), ObservedGeneration: generation,
	})
}

// SetReady sets the condition Ready of a policy or a storage config, and reports whether that changed it.
func SetReady(conditions *[]metav1.Condition, generation int64, ok bool, reason, message string) bool {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	return setCondition(conditions, generation, podsnapshotv1.ConditionReady, status, reason, message)
}
