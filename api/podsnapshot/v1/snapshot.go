package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodSnapshot is a snapshot of a pod. Agents create it. A pod that names it in the annotation
// podsnapshot.gke.io/ps-name is restored from it. Deleting it deletes the stored data.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels=app.kubernetes.io/component=definitions
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policyName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Purpose",type=string,priority=1,JSONPath=`.metadata.annotations.diapause\.dev/purpose`
type PodSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PodSnapshotSpec `json:"spec"`
	// +optional
	Status PodSnapshotStatus `json:"status,omitempty"`
}

// PodSnapshotList is a list of PodSnapshots.
//
// +kubebuilder:object:root=true
type PodSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodSnapshot `json:"items"`
}

// PodSnapshotSpec says what the snapshot belongs to.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PodSnapshotSpec struct {
	// policyName names the PodSnapshotPolicy, in the same namespace, that selected the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a snapshot stays with its policy: policyName cannot be changed"
	PolicyName string `json:"policyName"`
}

// PodSnapshotStatus is the state of the snapshot.
type PodSnapshotStatus struct {
	// conditions holds Checkpoint (the pod has been captured), StorageReplicated (the snapshot is in
	// the store) and Ready (it can be restored).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// lastAccessTime is when a pod was last restored from the snapshot.
	// +optional
	LastAccessTime *metav1.Time `json:"lastAccessTime,omitempty"`
	// observedCheckpointRetryCount is a field of GKE. Diapause never writes it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedCheckpointRetryCount int32 `json:"observedCheckpointRetryCount,omitempty"`
	// observedGeneration is the generation of the spec to which the status belongs.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// storageStatus says where the snapshot is stored, once it is.
	// +optional
	StorageStatus *StorageStatus `json:"storageStatus,omitempty"`
}

// StorageStatus says where a snapshot is stored: in one of the backends.
type StorageStatus struct {
	// +optional
	GCS *GCSStorageStatus `json:"gcs,omitempty"`
	// +optional
	S3 *S3StorageStatus `json:"s3,omitempty"`
	// +optional
	AzureBlob *AzureBlobStorageStatus `json:"azureBlob,omitempty"`
	// +optional
	Dir *DirStorageStatus `json:"dir,omitempty"`
}

// GCSStorageStatus is a place in a bucket.
type GCSStorageStatus struct {
	// observedGCSPath is the snapshot's place, as in gs://bucket/path/namespace/snapshots/name.
	// +required
	ObservedGCSPath string `json:"observedGCSPath"`
}

// S3StorageStatus is a place in a bucket of S3.
type S3StorageStatus struct {
	// observedPath is the snapshot's place, as in s3://bucket/path/namespace/snapshots/name?region=eu-west-1.
	// +required
	ObservedPath string `json:"observedPath"`
}

// AzureBlobStorageStatus is a place in a container of Azure Blob Storage.
type AzureBlobStorageStatus struct {
	// observedPath is the snapshot's place, as in azblob://account/container/path/namespace/snapshots/name.
	// +required
	ObservedPath string `json:"observedPath"`
}

// DirStorageStatus is a place in a directory.
type DirStorageStatus struct {
	// observedPath is the snapshot's directory.
	// +required
	ObservedPath string `json:"observedPath"`
}
