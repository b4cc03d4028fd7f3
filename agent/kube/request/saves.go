package request

import (
	"context"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/kube/names"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/api/snapshot"
)

// Saves are what the cluster says of this node's checkpoints, and hears of them. It implements checkpoint.Cluster. Its
// methods may be called concurrently.
type Saves struct {
	objects       *objects.Objects
	names         *names.Clock
	descriptions  *descriptions
	confirmations *confirmations
}

// NewSaves returns what the cluster says of the checkpoints that are reported. The clock gives snapshots their names.
func NewSaves(o *objects.Objects, r *Reports, clock *names.Clock) *Saves {
	return &Saves{
		objects: o, names: clock,
		descriptions:  &descriptions{objects: o, jobs: r.records.Jobs, plans: &plans{objects: o}},
		confirmations: &confirmations{objects: o, records: r.records},
	}
}

// Describe implements checkpoint.Cluster.
func (s *Saves) Describe(ctx context.Context, ref snapshot.PodRef) (checkpoint.Description, error) {
	return s.descriptions.pod(ctx, ref)
}

// DescribeWorkload implements checkpoint.Cluster.
func (s *Saves) DescribeWorkload(ctx context.Context, ref snapshot.PodRef) (checkpoint.Description, error) {
	return s.descriptions.workload(ctx, ref)
}

// Confirmed implements checkpoint.Cluster.
func (s *Saves) Confirmed(ctx context.Context, ref snapshot.PodRef, k snapshot.Key) error {
	return s.confirmations.await(ctx, ref, k)
}

// Name implements checkpoint.Cluster.
func (s *Saves) Name() string { return s.names.Name(names.Chance()) }

// Unsaved implements checkpoint.Cluster. It makes an event on the pod that says why.
func (s *Saves) Unsaved(ref snapshot.PodRef, err error) {
	s.objects.Events.Pod(ref, snapshot.Key{}, notice.NotCheckpointed, err)
}
