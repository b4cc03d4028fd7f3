// Package v1alpha1 contains the Go types of the Kubernetes API diapause.dev/v1alpha1:
//
//   - [SleepPolicy], of a namespace: which pods are put to sleep when nobody uses them.
//
// The custom resource definition in manifests/crds and the deep copies are generated from these types: after a change
// run make generate.
//
// +kubebuilder:object:generate=true
// +groupName=diapause.dev
package v1alpha1

//go:generate go tool controller-gen object crd paths=. output:crd:dir=../../../manifests/crds
