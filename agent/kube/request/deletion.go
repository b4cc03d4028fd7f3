package request

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"diapause.dev/agent/kube/objects"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// serveDeletion does this node's part in the deletion of a PodSnapshot. The origin node removes all of it; another
// node removes its own copy, if any.
func (rs *Requests) serveDeletion(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k := objects.KeyOf(s)
	if s.Annotations[podsnapshotv1.AnnotationOriginNode] != rs.NodeName {
		return rs.Node.Forget(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID])
	}
	if j, ok := rs.jobs.state(k); ok && !j.ended && !j.spooled {
		return nil // it is requeued when the capture ends
	}
	if err := rs.removals.Finalize(ctx, s); err != nil {
		return err
	}
	return rs.forget(ctx, k)
}

// serveDeleted removes what this node has of a snapshot whose PodSnapshot no longer exists.
func (rs *Requests) serveDeleted(ctx context.Context, e entry) error {
	if j, ok := rs.jobs.state(e.Key); ok && !j.ended && !j.spooled {
		return nil // it is requeued when the capture ends
	}
	s := new(podsnapshotv1.PodSnapshot)
	err := rs.Objects.Live.Get(ctx, objects.Named(e.Key), s)
	switch {
	case err == nil && string(s.UID) == e.Published:
		rs.Objects.Wrote(s) // the cache does not have it yet
		return nil
	case err == nil: // another PodSnapshot has that name now
		if err := rs.Node.Forget(ctx, e.Key, e.UID); err != nil {
			return fmt.Errorf("forget %s: %w", e.Key, err)
		}
		return rs.forget(ctx, e.Key)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read PodSnapshot %s: %w", e.Key, err)
	}
	location := ""
	if e.Plan != nil {
		location = e.Plan.Store
	}
	if err := rs.removals.Data(ctx, e.Key, e.UID, location); err != nil {
		return fmt.Errorf("remove what is left of PodSnapshot %s: %w", e.Key, err)
	}
	return rs.forget(ctx, e.Key)
}

// forget forgets a snapshot that no longer exists, but not before the object that asked for it has its answer.
func (rs *Requests) forget(ctx context.Context, k snapshot.Key) error {
	rs.Objects.Unsure(k)
	if q, ok := rs.reported.get(k); ok {
		rs.reported.drop(q)
	}
	e, ok := rs.ledger.get(k)
	if !ok {
		return nil
	}
	d, open := rs.requesterOf(ctx, e)
	if !open {
		return rs.ledger.drop(k)
	}
	e.Deleted = true
	if err := rs.ledger.put(e); err != nil {
		return err
	}
	d.kick(rs)
	return nil
}
