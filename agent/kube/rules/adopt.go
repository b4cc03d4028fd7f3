package rules

import (
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// AdoptedFrom returns the value of the annotation AnnotationAdoptedFrom for a snapshot of that origin.
func AdoptedFrom(o snapshot.Origin) string { return o.Cluster + "/" + o.NamespaceUID }

// Adopted reports whether a PodSnapshot says that this cluster has taken over snapshots of that origin.
func Adopted(s *podsnapshotv1.PodSnapshot, o snapshot.Origin) bool {
	return o.Cluster != "" && s.Annotations[podsnapshotv1.AnnotationAdoptedFrom] == AdoptedFrom(o)
}
