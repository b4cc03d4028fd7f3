package v1

import "encoding/json"

// SleepStatus is the value of AnnotationSleepStatus. It answers the newest of the requests in AnnotationSleep and
// AnnotationWake.
//
// +kubebuilder:object:generate=false
type SleepStatus struct {
	Sleep   string     `json:"sleep,omitempty"` // the newest request that was taken
	Wake    string     `json:"wake,omitempty"`  // likewise
	State   SleepState `json:"state"`
	Message string     `json:"message,omitempty"`
}

// SleepState is the state of the newest request.
type SleepState string

// States of a request.
const (
	SleepWorking SleepState = "Working" // an agent works on it
	SleepAsleep  SleepState = "Asleep"
	SleepAwake   SleepState = "Awake"
	SleepFailed  SleepState = "Failed" // the message says why
)

// ParseSleepStatus parses the answer in the annotations of a pod. A malformed answer counts as none.
func ParseSleepStatus(annotations map[string]string) (s SleepStatus) {
	if json.Unmarshal([]byte(annotations[AnnotationSleepStatus]), &s) != nil {
		return SleepStatus{}
	}
	return s
}
