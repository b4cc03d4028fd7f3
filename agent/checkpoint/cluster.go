package checkpoint

import (
	"context"

	"diapause.dev/agent/netadmin"
	"diapause.dev/api/snapshot"
)

// Cluster is what checkpoints need of the cluster that a node belongs to.
type Cluster interface {
	// Describe returns what a snapshot of a pod records and where it is stored. It is called for every checkpoint, however
	// the checkpoint was requested. An error refuses the checkpoint.
	Describe(ctx context.Context, pod snapshot.PodRef) (Description, error)
	// DescribeWorkload is Describe for a save that the pod's own workload has started. It refuses the save unless the
	// cluster allows that pod to save itself.
	DescribeWorkload(ctx context.Context, pod snapshot.PodRef) (Description, error)
	// Confirmed waits until the cluster has confirmed the snapshot of a pod, so that every node may restore it. That may
	// be before the snapshot is made. It returns at once for a pod that the cluster does not know. If the cluster does
	// not confirm the snapshot, or not before ctx is done, the error is of kind errkind.ErrNotConfirmed.
	Confirmed(ctx context.Context, pod snapshot.PodRef, key snapshot.Key) error
	// Name returns a name for a snapshot that is being taken and that was requested without a name.
	Name() string
	// Unsaved reports why a save that the pod's own workload started has failed. It must not block.
	Unsaved(pod snapshot.PodRef, err error)
}

// Description is what a cluster knows about a pod that is checkpointed.
type Description struct {
	Cluster        string // the cluster's identity, recorded in snapshots; empty: not known
	NamespaceUID   string // of the pod's namespace, recorded in snapshots; empty: not known
	ServiceAccount string
	Group          map[string]string
	SpecHash       string
	Store          string // location; empty: the agent's own
	// Scope is how much of the pod its snapshots keep, unless the request asks for less.
	Scope snapshot.Scope
	// Stop ends a sandbox after a save that its own workload started, once the snapshot is spooled.
	Stop bool
	// Inheritable: if the pod is deleted while it sleeps, its successors may be restored from the snapshot of its sleep.
	Inheritable bool
	NetAdmin    netadmin.Case
}
