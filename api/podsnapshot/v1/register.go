package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of the types of this package.
const Group = "podsnapshot.gke.io"

// GroupVersion is the API group and version of the types of this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1"}

// Resource returns the group's resource with that plural name, in the form that clients' errors use.
func Resource(plural string) schema.GroupResource {
	return schema.GroupResource{Group: Group, Resource: plural}
}

// AddToScheme adds the types of this package to a scheme. It always returns nil; scheme builders expect the result.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&PodSnapshotStorageConfig{}, &PodSnapshotStorageConfigList{},
		&PodSnapshotPolicy{}, &PodSnapshotPolicyList{},
		&PodSnapshotManualTrigger{}, &PodSnapshotManualTriggerList{},
		&PodSnapshot{}, &PodSnapshotList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
