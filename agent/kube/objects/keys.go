package objects

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// KeyOf returns a PodSnapshot's key.
func KeyOf(s *podsnapshotv1.PodSnapshot) snapshot.Key {
	return snapshot.Key{Namespace: s.Namespace, Name: s.Name}
}

// Named returns a snapshot's key in the form that objects have.
func Named(k snapshot.Key) client.ObjectKey {
	return client.ObjectKey{Namespace: k.Namespace, Name: k.Name}
}
