package request

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
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
	if err := rs.Finalize(ctx, s); err != nil {
		return err
	}
	return rs.forget(ctx, k)
}

// Finalize removes the stored data of a PodSnapshot that is being deleted, and then its finalizer.
func (rs *Requests) Finalize(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k := objects.KeyOf(s)
	if !controllerutil.ContainsFinalizer(s, podsnapshotv1.Finalizer) {
		return nil
	}
	location, err := rs.Objects.StoreOf(ctx, s)
	if err != nil {
		return err
	}
	if err := rs.removeStored(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID], location); err != nil {
		rs.deleting(ctx, s, err)
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	before := s.DeepCopy()
	controllerutil.RemoveFinalizer(s, podsnapshotv1.Finalizer)
	err = rs.Objects.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	rs.Objects.Unsure(k)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	return nil
}

// maxRemovals is how many removals may wait for a store at a time. A store that does not answer must not block all
// workers.
const maxRemovals = control.Workers / 2

// errBusy means that maxRemovals removals are under way. The removal is retried.
var errBusy = errors.New("other snapshots are being removed")

// removeStored removes the stored data of the snapshot with this UID, from this node and from the store at location.
func (rs *Requests) removeStored(ctx context.Context, k snapshot.Key, uid, location string) error {
	select {
	case rs.removals <- struct{}{}:
		defer func() { <-rs.removals }()
	default:
		return errBusy
	}
	return rs.Node.Remove(ctx, k, uid, location)
}

// deleting says in the status why a PodSnapshot that is being deleted still exists.
func (rs *Requests) deleting(ctx context.Context, s *podsnapshotv1.PodSnapshot, why error) {
	before := s.DeepCopy()
	if !rules.SetReady(&s.Status.Conditions, s.Generation, false, podsnapshotv1.ReasonDeleting,
		"its data is still stored: "+why.Error()) {
		return
	}
	if err := rs.Objects.Status().Patch(ctx, s, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		rs.log.Warn("status not written", "snapshot", objects.KeyOf(s).String(), "error", err)
	}
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
	if err := rs.removeStored(ctx, e.Key, e.UID, location); err != nil {
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
