package objects

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// PodSnapshot returns a PodSnapshot as last seen or written, or nil if there is none.
func (o *Objects) PodSnapshot(ctx context.Context, k snapshot.Key) (*podsnapshotv1.PodSnapshot, error) {
	s := new(podsnapshotv1.PodSnapshot)
	if err := o.Get(ctx, Named(k), s); apierrors.IsNotFound(err) {
		s = nil
	} else if err != nil {
		return nil, fmt.Errorf("read PodSnapshot %s: %w", k, err)
	}
	return o.latest.newer(k, s), nil
}

// Newer returns what this agent has written after s, which is from the cache or the API server, or else s.
func (o *Objects) Newer(s *podsnapshotv1.PodSnapshot) *podsnapshotv1.PodSnapshot {
	return o.latest.newer(KeyOf(s), s)
}

// Wrote records the PodSnapshot with which the API server has answered: PodSnapshot returns it at once.
func (o *Objects) Wrote(s *podsnapshotv1.PodSnapshot) { o.latest.put(s) }

// Unsure forgets what Wrote recorded of a PodSnapshot: it may have changed since.
func (o *Objects) Unsure(k snapshot.Key) { o.latest.drop(k) }

// WriteStatus makes a change of a PodSnapshot's status. Change reports whether it is one.
func (o *Objects) WriteStatus(ctx context.Context, s *podsnapshotv1.PodSnapshot,
	change func(*podsnapshotv1.PodSnapshot) bool,
) error {
	before := s.DeepCopy()
	if !change(s) {
		return nil
	}
	if err := o.Status().Patch(ctx, s, client.MergeFrom(before)); err != nil {
		o.Unsure(KeyOf(s))
		return fmt.Errorf("status of PodSnapshot %s: %w", KeyOf(s), err)
	}
	o.Wrote(s)
	return nil
}
