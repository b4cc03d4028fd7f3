package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// serveDeletion does this node's part in the deletion of a PodSnapshot. The origin node removes all of it, but nothing
// from a bucket; another node removes its own copy, if any.
func (rs *Requests) serveDeletion(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k := objects.KeyOf(s)
	if s.Annotations[podsnapshotv1.AnnotationOriginNode] != rs.NodeName {
		return rs.Node.Forget(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID])
	}
	if j, ok := rs.jobs.state(k); ok && !j.ended && !j.spooled {
		return nil // it is requeued when the capture ends
	}
	location, err := rs.Objects.StoreOf(ctx, s)
	switch {
	case err != nil:
		return err
	case rules.InBucket(cmp.Or(location, rs.Store)):
		err = rs.withdraw(ctx, s)
	default:
		err = rs.removals.Finalize(ctx, s)
	}
	if err != nil {
		return err
	}
	return rs.forget(ctx, k)
}

// withdraw removes what this node has of a PodSnapshot that is being deleted, and leaves the rest to the controller.
func (rs *Requests) withdraw(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	if s.Annotations[podsnapshotv1.AnnotationWithdrawn] != "" {
		return nil
	}
	k := objects.KeyOf(s)
	if err := rs.Node.Withdraw(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID]); err != nil {
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	return rs.removals.Withdrawn(ctx, s)
}

// serveDeleted removes what this node has of a snapshot whose PodSnapshot no longer exists. If the cluster was brought
// back from an older backup, nobody may have deleted that: the error is of kind rollback.ErrRolledBack.
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
	if err := rs.Remembers(ctx); err != nil {
		return fmt.Errorf("PodSnapshot %s is missing: %w", e.Key, err)
	}
	location := ""
	if e.Plan != nil {
		location = e.Plan.Store
	}
	if err := rs.removals.Data(ctx, e.Key, e.UID, location); errors.Is(err, storage.ErrDenied) {
		rs.log.Info("data of a snapshot whose PodSnapshot has gone is left to the controller's sweep", "snapshot",
			e.Key.String(), "reason", err)
	} else if err != nil {
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
