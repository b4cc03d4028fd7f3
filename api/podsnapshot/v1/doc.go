// Package v1 contains the Go types of the Kubernetes API podsnapshot.gke.io/v1. Diapause shares this API
// with GKE's Pod snapshots, so that objects and clients written for those work unchanged:
//
//   - [PodSnapshotStorageConfig], of the cluster: where snapshots are stored.
//   - [PodSnapshotPolicy], of a namespace: which pods may be checkpointed, how, and how long their
//     snapshots are kept.
//   - [PodSnapshotManualTrigger]: asks for one checkpoint of one pod.
//   - [PodSnapshot]: a snapshot. An agent creates it; pods that are to be restored from it name it.
//
// Labels, annotations, condition types and reasons are in names.go. The custom resource definitions
// in manifests/crds and the deep copies are generated from these types: after a change run make
// generate. Fields that only GKE knows are kept in specs, and ignored.
//
// +kubebuilder:object:generate=true
// +groupName=podsnapshot.gke.io
package v1

//go:generate go tool controller-gen object crd paths=. output:crd:dir=../../../manifests/crds
