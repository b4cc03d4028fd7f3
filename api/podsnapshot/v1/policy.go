package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodSnapshotPolicy says which pods of its namespace may be checkpointed and restored, how, and how long their
// snapshots are kept. A pod is checkpointed only if exactly one policy selects it.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels=app.kubernetes.io/component=definitions
// +kubebuilder:resource:path=podsnapshotpolicies
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Trigger",type=string,JSONPath=`.spec.triggerConfig.type`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodSnapshotPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PodSnapshotPolicySpec `json:"spec"`
	// +optional
	Status PodSnapshotPolicyStatus `json:"status,omitempty"`
}

// PodSnapshotPolicyList is a list of PodSnapshotPolicies.
//
// +kubebuilder:object:root=true
type PodSnapshotPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodSnapshotPolicy `json:"items"`
}

// PodSnapshotPolicySpec is the desired behavior.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PodSnapshotPolicySpec struct {
	// storageConfigName names the PodSnapshotStorageConfig where snapshots are stored.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="write the metadata.name of a PodSnapshotStorageConfig"
	StorageConfigName string `json:"storageConfigName"`
	// selector selects the pods, for checkpoint and restore alike.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="an operator of matchExpressions is In, NotIn, Exists or DoesNotExist"
	Selector metav1.LabelSelector `json:"selector"`
	// triggerConfig says what causes a checkpoint.
	// +required
	TriggerConfig TriggerConfig `json:"triggerConfig"`
	// snapshotScope says how much of a pod is kept.
	// +optional
	// +kubebuilder:default=whole-pod
	SnapshotScope SnapshotScope `json:"snapshotScope,omitempty"`
	// retentionConfig says when an unused snapshot is deleted. Without it, no snapshot is.
	// +optional
	RetentionConfig *RetentionConfig `json:"retentionConfig,omitempty"`
	// snapshotGroupingRules says which pods share snapshots. Without it, all of the policy's pods with equal specs share
	// them.
	// +optional
	SnapshotGroupingRules *SnapshotGroupingRules `json:"snapshotGroupingRules,omitempty"`
}

// TriggerConfig says what causes a checkpoint and what happens after it.
//
// +kubebuilder:pruning:PreserveUnknownFields
type TriggerConfig struct {
	// type is manual (by a PodSnapshotManualTrigger) or workload (by the application, which writes to
	// /proc/gvisor/checkpoint).
	// +required
	Type TriggerType `json:"type"`
	// postCheckpoint is resume (the pod runs on) or stop (it is ended).
	// +optional
	// +kubebuilder:default=resume
	PostCheckpoint PostCheckpoint `json:"postCheckpoint,omitempty"`
}

// TriggerType is what causes a checkpoint.
//
// +kubebuilder:validation:Enum=manual;workload
type TriggerType string

// What causes a checkpoint.
const (
	TriggerManual   TriggerType = "manual"   // a PodSnapshotManualTrigger
	TriggerWorkload TriggerType = "workload" // the application itself
)

// PostCheckpoint says what happens to a pod after its checkpoint.
//
// +kubebuilder:validation:Enum=resume;stop
type PostCheckpoint string

// What happens to a pod after its checkpoint.
const (
	PostCheckpointResume PostCheckpoint = "resume" // it runs on
	PostCheckpointStop   PostCheckpoint = "stop"   // it is ended
)

// SnapshotScope is how much of a pod a snapshot keeps.
//
// +kubebuilder:validation:Enum=whole-pod;rootfs-only
type SnapshotScope string

// How much of a pod a snapshot keeps.
const (
	ScopeWholePod   SnapshotScope = "whole-pod"   // memory, processes and files
	ScopeRootfsOnly SnapshotScope = "rootfs-only" // files alone
)

// RetentionConfig says when an unused snapshot is deleted.
//
// +kubebuilder:pruning:PreserveUnknownFields
type RetentionConfig struct {
	// lastAccessTimeout is how long a snapshot is kept after its last restore or, if there was none, after its creation.
	// It consists of whole numbers with the units y (365 days), mo (30 days), d, h and min, longest first, as in 7d,
	// 90min or 1d12h.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,2}y)?([0-9]{1,3}mo)?([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,6}min)?$') && self.matches('[1-9]')",message="write whole numbers with the units y, mo, d, h and min, longest first and more than zero, as in 7d, 90min or 1d12h"
	LastAccessTimeout string `json:"lastAccessTimeout"`
}

// SnapshotGroupingRules says which pods share snapshots.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SnapshotGroupingRules struct {
	// groupByLabelValue groups pods that have equal values of certain labels.
	// +required
	GroupByLabelValue GroupByLabelValue `json:"groupByLabelValue"`
}

// GroupByLabelValue groups pods that have equal values of certain labels.
//
// +kubebuilder:pruning:PreserveUnknownFields
type GroupByLabelValue struct {
	// labels are the label keys. A pod must have all of them to be checkpointed or restored.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="write the key of a pod's label, as in app or agents.x-k8s.io/sandbox-name-hash"
	Labels []string `json:"labels"`
	// groupRetentionPolicy says how many snapshots a group keeps. Without it, a group keeps all.
	// +optional
	GroupRetentionPolicy *GroupRetentionPolicy `json:"groupRetentionPolicy,omitempty"`
}

// GroupRetentionPolicy says how many snapshots a group keeps.
//
// +kubebuilder:pruning:PreserveUnknownFields
type GroupRetentionPolicy struct {
	// maxSnapshotCountPerGroup is how many snapshots a group keeps at most. The oldest are deleted first. 0 means all.
	// +required
	// +kubebuilder:validation:Minimum=0
	MaxSnapshotCountPerGroup int32 `json:"maxSnapshotCountPerGroup"`
}

// PodSnapshotPolicyStatus is what the controller has found.
type PodSnapshotPolicyStatus struct {
	// conditions holds Ready: whether the policy can be used.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec to which the status belongs.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
