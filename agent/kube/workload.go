package kube

import (
	corev1 "k8s.io/api/core/v1"

	"diapause.dev/api/snapshot"
)

// Unsaved implements agent.Cluster. It makes an event on the pod that says why.
func (c *Cluster) Unsaved(ref snapshot.PodRef, err error) {
	c.event(ref, snapshot.Key{}, corev1.EventTypeWarning, actionCheckpoint, "Failed to checkpoint the pod: "+err.Error())
}
