package kube

import (
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
)

// snapshotNames is the name space of the UUIDs that name snapshots.
var snapshotNames = uuid.MustParse("6c1f3a5e-0a52-4d0e-9c41-1f6a2f0d7b18")

// nameFor returns the name of the one snapshot that a trigger makes.
func nameFor(trigger types.UID) string {
	return uuid.NewSHA1(snapshotNames, []byte(trigger)).String()
}

// nameForAnnotation returns the name of the one snapshot that a pod's annotation of some value makes.
func nameForAnnotation(pod types.UID, id string) string {
	return uuid.NewSHA1(snapshotNames, []byte(string(pod)+"/"+id)).String()
}
