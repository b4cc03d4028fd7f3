package checkpoint

import (
	"log/slog"

	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
)

// accepted is what is known of a request once its turn has come.
type accepted struct {
	o           Options
	log         *slog.Logger
	rec         *journal.Record
	pod         *cri.Pod
	description Description // what the cluster knows about the pod
	asleep      bool        // the pod slept when its turn came, and was not woken
}

// ref identifies the pod to the cluster.
func (a *accepted) ref() snapshot.PodRef {
	return snapshot.PodRef{Namespace: a.pod.Namespace, Name: a.pod.Name, UID: a.pod.UID}
}

// origin returns what the snapshot says of its pod, which is on that node.
func (a *accepted) origin(node string) snapshot.Origin {
	return snapshot.Origin{
		Pod: a.pod.Name, PodUID: a.pod.UID, SandboxID: a.pod.ID, Node: node,
		ServiceAccount: a.description.ServiceAccount, Group: a.description.Group, SpecHash: a.description.SpecHash,
		Cluster: a.description.Cluster, NamespaceUID: a.description.NamespaceUID,
	}
}

// stays says what becomes of a pod that was not saved.
func (a *accepted) stays() string {
	if a.asleep {
		return "sleeps on"
	}
	return "runs on"
}
