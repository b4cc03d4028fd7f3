package request

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Status is the value of the annotation diapause.dev/checkpoint-status. It answers the request in the pod's
// annotation diapause.dev/checkpoint.
type Status struct {
	ID       string `json:"id"` // of the request
	State    State  `json:"state"`
	Snapshot string `json:"snapshot,omitempty"` // the PodSnapshot's name, once it is Ready
	Message  string `json:"message,omitempty"`
}

// State is the state of a request in a pod's annotation.
type State string

// States of a request.
const (
	StateCheckpointing State = "Checkpointing" // an agent works on it
	StateComplete      State = "Complete"      // the PodSnapshot is Ready
	StateFailed        State = "Failed"        // there is no PodSnapshot, or the pod was not stopped; the message says why
)

// ParseStatus parses the answer on a pod. A malformed answer counts as none.
func ParseStatus(pod *corev1.Pod) Status {
	var s Status
	if json.Unmarshal([]byte(pod.Annotations[podsnapshotv1.AnnotationCheckpointStatus]), &s) != nil {
		return Status{}
	}
	return s
}
