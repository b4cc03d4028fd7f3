package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodSnapshotManualTrigger asks, once, for a checkpoint of a pod in its namespace. Anyone who may create a trigger
// may read the pod's memory. Deleting it does not delete the snapshot.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels=app.kubernetes.io/component=definitions
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.targetPod`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Triggered")].reason`
// +kubebuilder:printcolumn:name="Snapshot",type=string,JSONPath=`.status.snapshotCreated.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodSnapshotManualTrigger struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PodSnapshotManualTriggerSpec `json:"spec"`
	// +optional
	Status PodSnapshotManualTriggerStatus `json:"status,omitempty"`
}

// PodSnapshotManualTriggerList is a list of PodSnapshotManualTriggers.
//
// +kubebuilder:object:root=true
type PodSnapshotManualTriggerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodSnapshotManualTrigger `json:"items"`
}

// PodSnapshotManualTriggerSpec is the request.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a trigger acts once and cannot be changed: create another PodSnapshotManualTrigger"
type PodSnapshotManualTriggerSpec struct {
	// targetPod is the name of a pod in the trigger's namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="write the metadata.name of a pod of this namespace, without the namespace"
	TargetPod string `json:"targetPod"`
}

// PodSnapshotManualTriggerStatus is the progress and the outcome.
type PodSnapshotManualTriggerStatus struct {
	// conditions holds Triggered: Unknown while an agent works on the trigger, then True with the
	// reason Complete, or False with the reason Failed and a message.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// snapshotCreated is the snapshot. It is written together with the reason Complete.
	// +optional
	SnapshotCreated *SnapshotCreated `json:"snapshotCreated,omitempty"`
	// nodeName is the node whose agent has taken the trigger. From then on no other agent writes the status.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`
	// podUID is the UID of the pod to checkpoint. Another pod with the same name is not checkpointed.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PodUID string `json:"podUID,omitempty"`
	// observedGeneration is the generation of the spec to which the status belongs.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// SnapshotCreated is the snapshot that a trigger made.
type SnapshotCreated struct {
	// name is the PodSnapshot's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}
