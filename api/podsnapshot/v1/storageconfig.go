package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodSnapshotStorageConfig says where snapshots are stored. It belongs to the cluster; policies refer to it by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels=app.kubernetes.io/component=definitions
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodSnapshotStorageConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PodSnapshotStorageConfigSpec `json:"spec"`
	// +optional
	Status PodSnapshotStorageConfigStatus `json:"status,omitempty"`
}

// PodSnapshotStorageConfigList is a list of PodSnapshotStorageConfigs.
//
// +kubebuilder:object:root=true
type PodSnapshotStorageConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodSnapshotStorageConfig `json:"items"`
}

// PodSnapshotStorageConfigSpec is the desired store.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PodSnapshotStorageConfigSpec struct {
	// snapshotStorageConfig is the store.
	// +required
	SnapshotStorageConfig SnapshotStorageConfig `json:"snapshotStorageConfig"`
}

// SnapshotStorageConfig is a store: exactly one backend.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="[has(self.gcs), has(self.s3), has(self.azureBlob), has(self.dir)].exists_one(x, x)",message="name exactly one backend: gcs (with gcs.bucket), s3 (with s3.bucket and s3.region), azureBlob (with azureBlob.account and azureBlob.container) or dir (with dir.path)"
// +kubebuilder:validation:XValidation:rule="has(self.gcs) == has(oldSelf.gcs) && has(self.s3) == has(oldSelf.s3) && has(self.azureBlob) == has(oldSelf.azureBlob) && has(self.dir) == has(oldSelf.dir)",message="the kind of backend cannot be changed, snapshots would be lost in the old one: create another PodSnapshotStorageConfig and name it in the policies"
type SnapshotStorageConfig struct {
	// gcs stores snapshots in a bucket of Google Cloud Storage.
	// +optional
	GCS *GCSStorage `json:"gcs,omitempty"`
	// s3 stores snapshots in a bucket of Amazon S3, or of a service with its protocol. GKE does not have this field.
	// +optional
	S3 *S3Storage `json:"s3,omitempty"`
	// azureBlob stores snapshots in a container of Azure Blob Storage. GKE does not have this field.
	// +optional
	AzureBlob *AzureBlobStorage `json:"azureBlob,omitempty"`
	// dir stores snapshots in a directory of the nodes. Unless all nodes share its file system, a snapshot can be
	// restored only on the node that made it.
	// +optional
	Dir *DirStorage `json:"dir,omitempty"`
}

// GCSStorage is a bucket of Google Cloud Storage, or a part of one.
//
// +kubebuilder:pruning:PreserveUnknownFields
type GCSStorage struct {
	// bucket is the bucket's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=222
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$')",message="write the bucket's name alone, as in my-bucket (3 to 222 of a-z, 0-9, '-', '_' and '.', a letter or digit at both ends), without gs:// and without a path, which goes into gcs.path"
	Bucket string `json:"bucket"`
	// path is a directory in the bucket. Empty means the whole bucket.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([^/[:cntrl:]]+(/[^/[:cntrl:]]+)*/?)?$') && !self.matches('(^|/)[.][.]?(/|$)')",message="write a directory in the bucket without a leading '/', without '.' and '..', as in team-a/snapshots"
	Path string `json:"path,omitempty"`
	// tokenSource says whose identity GKE uses to read and write the bucket. It is accepted so that objects written for
	// GKE apply. Diapause always uses the agent's own identity.
	// +optional
	// +kubebuilder:default=podKSA
	TokenSource TokenSource `json:"tokenSource,omitempty"`
}

// S3Storage is a bucket of Amazon S3 or of a service with its protocol, or a part of one.
//
// +kubebuilder:pruning:PreserveUnknownFields
type S3Storage struct {
	// bucket is the bucket's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$') && !self.endsWith('--x-s3')",message="write the bucket's name alone, as in my-bucket (3 to 63 of a-z, 0-9, '-' and '.', a letter or digit at both ends; no directory bucket), without s3:// and without a path, which goes into s3.path"
	Bucket string `json:"bucket"`
	// path is a directory in the bucket. Empty means the whole bucket.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9_-][a-z0-9._-]*(/[a-z0-9_-][a-z0-9._-]*)*/?)?$')",message="write a directory in the bucket without a leading '/', of a-z, 0-9, '-', '_' and '.', as in team-a/snapshots"
	Path string `json:"path,omitempty"`
	// region is the bucket's region. Services that know no regions take us-east-1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9-]+$')",message="write a region, as in eu-west-1"
	Region string `json:"region"`
	// endpoint is where the service is. Empty means Amazon's own endpoint of the region.
	// +optional
	// +kubebuilder:validation:MaxLength=300
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https?://([a-z0-9.-]+|[[][0-9a-f:.]+[]])(:[0-9]{1,5})?)?$')",message="write https://host or https://host:port, without a path"
	Endpoint string `json:"endpoint,omitempty"`
	// pathStyle says whether the bucket's name is a part of the path (true) or of the host's name (false). By default the
	// endpoint's name decides.
	// +optional
	PathStyle *bool `json:"pathStyle,omitempty"`
}

// AzureBlobStorage is a container of Azure Blob Storage, or a part of one.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!has(self.endpoint) || !self.endpoint.matches('[^/]/[^/]') || self.endpoint.endsWith('/' + self.account)",message="behind the host, azureBlob.endpoint may have azureBlob.account and nothing else"
type AzureBlobStorage struct {
	// account is the storage account's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]{3,24}$')",message="write the account's name alone, as in mysnapshots (3 to 24 of a-z and 0-9)"
	Account string `json:"account"`
	// container is the container's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.size() >= 3 && self.matches('^[a-z0-9](-?[a-z0-9])+$')",message="write the container's name alone, as in my-container (3 to 63 of a-z, 0-9 and single '-' between them), without a path, which goes into azureBlob.path"
	Container string `json:"container"`
	// path is a directory in the container. Empty means the whole container.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9_-]([a-z0-9._-]*[a-z0-9_-])?(/[a-z0-9_-]([a-z0-9._-]*[a-z0-9_-])?)*/?)?$')",message="write a directory in the container without a leading '/', of a-z, 0-9, '-', '_' and '.', which is at neither end, as in team-a/snapshots"
	Path string `json:"path,omitempty"`
	// endpoint is where the account is. Empty means Azure's public cloud.
	// +optional
	// +kubebuilder:validation:MaxLength=300
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https?://([a-z0-9.-]+|[[][0-9a-f:.]+[]])(:[0-9]{1,5})?(/[a-z0-9]{3,24})?)?$')",message="write https://host or https://host:port, and behind it at most /ACCOUNT"
	Endpoint string `json:"endpoint,omitempty"`
}

// TokenSource says whose identity reads and writes a bucket.
//
// +kubebuilder:validation:Enum=podKSA;federatedP4SA
type TokenSource string

// The token sources of GKE.
const (
	TokenSourcePodKSA        TokenSource = "podKSA"
	TokenSourceFederatedP4SA TokenSource = "federatedP4SA"
)

// DirStorage is a directory of the nodes.
type DirStorage struct {
	// path is the directory, as the agent sees it. It must be mounted into the agent's pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/[:cntrl:]]+)+$') && !self.matches('/[.][.]?(/|$)')",message="write an absolute path without '.', '..', doubled or trailing '/', as in /var/lib/diapause/store"
	Path string `json:"path"`
}

// PodSnapshotStorageConfigStatus is what the controller has found.
type PodSnapshotStorageConfigStatus struct {
	// conditions holds Ready: whether the store can be used.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec to which the status belongs.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
