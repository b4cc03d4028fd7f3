// Package v1 holds the Go types of the Kubernetes API podsnapshot.gke.io/v1, which Diapause shares
// with GKE's Pod snapshots, so that what is written for those works unchanged:
//
//   - [PodSnapshotStorageConfig], of the cluster: where snapshots are stored;
//   - [PodSnapshotPolicy], of a namespace: which pods may be checkpointed, how, and how long their
//     snapshots are kept;
//   - [PodSnapshotManualTrigger]: asks for one checkpoint of one pod;
//   - [PodSnapshot]: a snapshot; made by an agent, named by pods that want to be restored from it.
//
// Labels, annotations, condition types and reasons are in names.go. The custom resource
// definitions in manifests/crds and the deep copies are generated from these types: after a change
// run make generate. Fields of specs that only GKE knows are kept and ignored.
//
// +kubebuilder:object:generate=true
// +groupName=podsnapshot.gke.io
package v1

//go:generate go tool controller-gen object crd paths=. output:crd:dir=../../../manifests/crds
