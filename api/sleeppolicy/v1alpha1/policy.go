package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SleepPolicy says which pods of its namespace are put to sleep when nobody uses them. A pod that several policies
// select stays awake.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels=app.kubernetes.io/component=definitions
// +kubebuilder:resource:path=sleeppolicies
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Idle-After",type=string,JSONPath=`.spec.idleAfter`
// +kubebuilder:printcolumn:name="Dry-Run",type=boolean,JSONPath=`.spec.dryRun`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SleepPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec SleepPolicySpec `json:"spec"`
	// +optional
	Status SleepPolicyStatus `json:"status,omitempty"`
}

// SleepPolicyList is a list of SleepPolicies.
//
// +kubebuilder:object:root=true
type SleepPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SleepPolicy `json:"items"`
}

// SleepPolicySpec says which pods sleep, and when.
type SleepPolicySpec struct {
	// selector selects the pods.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="an operator of matchExpressions is In, NotIn, Exists or DoesNotExist"
	Selector metav1.LabelSelector `json:"selector"`
	// idleAfter is how long a pod must be idle before it is put to sleep, from 1s to 168h, as in 90s, 5m or 1h30m.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="write whole hours, minutes and seconds, from 1s to 168h, as in 90s, 5m or 1h30m"
	IdleAfter string `json:"idleAfter"`
	// minAwake is how long a pod stays awake at least after it was woken, or since its agent knows it, from 0s to 168h.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && duration(self) <= duration('168h')",message="write whole hours, minutes and seconds, from 0s to 168h, as in 90s, 5m or 1h30m"
	MinAwake string `json:"minAwake,omitempty"`
	// idle has the limits below which a pod is idle.
	// +optional
	// +kubebuilder:default={}
	Idle IdleLimits `json:"idle,omitempty"`
	// ignore is traffic that does not count as use of a pod, such as that of a monitoring system. It does not keep a pod
	// awake, and does not wake it. A pod that sleeps does not answer it: a new TCP connection is refused.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Ignore []IgnoredTraffic `json:"ignore,omitempty"`
	// endWithoutWaking says what becomes of a sleeping pod that is told to end, by deletion, drain or SIGTERM. If it is
	// true, the pod ends at once, with the exit status of the signal. If it is false, the pod is woken first and gets the
	// signal, so that its shutdown runs. SIGKILL ends it at once in any case.
	// +optional
	// +kubebuilder:default=true
	EndWithoutWaking *bool `json:"endWithoutWaking,omitempty"`
	// ready says whether a pod that sleeps has a sandbox for its wake, which then takes a third of the time. Such
	// sandboxes take memory of a budget that each node has. Auto: if the budget has room, the pods that went to sleep
	// last, and those that wake often. Always: at once, and before those with Auto. Never: not at all.
	// +optional
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Always;Auto;Never
	Ready Readiness `json:"ready,omitempty"`
	// dryRun has no pod put to sleep. Events say when it would have been.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// Readiness is whether a pod is to be ready to wake when it sleeps.
type Readiness string

// Values of Readiness.
const (
	ReadyAlways Readiness = "Always"
	ReadyAuto   Readiness = "Auto"
	ReadyNever  Readiness = "Never"
)

// IgnoredTraffic is a kind of traffic: IP packets from some addresses, for a port, or both.
//
// +kubebuilder:validation:MinProperties=1
type IgnoredTraffic struct {
	// from is a block of addresses, as in 10.1.2.0/24 or fd00::5/128. Without it, a packet may come from anywhere.
	// +optional
	// +kubebuilder:validation:MaxLength=43
	From string `json:"from,omitempty"`
	// port is a port of the pod, of TCP, UDP or SCTP. Without it, all packets from these addresses are ignored.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// IdleLimits are the limits below which a pod is idle.
type IdleLimits struct {
	// cpuMillicores is how much CPU the sandbox of an idle pod uses at most, in millicores.
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	CPUMillicores int32 `json:"cpuMillicores,omitempty"`
	// packetsPerMinute is how many packets an idle pod gets at most, in addition to those of its probes. Neighbors'
	// questions for addresses are such packets.
	// +optional
	// +kubebuilder:default=6
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	PacketsPerMinute int32 `json:"packetsPerMinute"`
	// answerWithin is for how long a request over TCP counts as use of the pod if the pod has answered nothing, from 0s to
	// 168h. A request has 64 bytes or more, and comes from outside of the pod. With 0s it does not count. gVisor's own
	// build of runsc does not tell.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && duration(self) <= duration('168h')",message="write whole hours, minutes and seconds, from 0s to 168h, as in 90s, 5m or 1h30m"
	AnswerWithin string `json:"answerWithin,omitempty"`
}

// SleepPolicyStatus is what the controller has found.
type SleepPolicyStatus struct {
	// conditions holds Ready: whether the policy can be used.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec to which the status belongs.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Reasons of the condition Ready.
const (
	// ReasonValid: nothing is wrong (True).
	ReasonValid = "Valid"
	// ReasonOverlapping: another policy may select the same pods; those stay awake (True).
	ReasonOverlapping = "Overlapping"
	// ReasonInvalid: the message says which field is wrong (False).
	ReasonInvalid = "Invalid"
)

// Reasons of events on pods.
const (
	// ReasonWouldSleep: a policy with dryRun would have put the pod to sleep.
	ReasonWouldSleep = "WouldSleep"
	// ReasonInUse: the message says what has kept the pod awake for long.
	ReasonInUse = "InUse"
)
