package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// serveDeletion does this node's part in the deletion of a PodSnapshot. The origin node removes all of it; another
// node removes its own copy, if any.
func (c *Cluster) serveDeletion(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k := keyOf(s)
	if s.Annotations[podsnapshotv1.AnnotationOriginNode] != c.cfg.NodeName {
		return c.node.Forget(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID])
	}
	if o, ok := c.orders.state(k); ok && !o.ended && !o.spooled {
		return nil // it is requeued when the capture ends
	}
	if err := c.remove(ctx, s); err != nil {
		return err
	}
	return c.forget(ctx, k)
}

// remove removes the stored data of a PodSnapshot that is being deleted, and then its finalizer.
func (c *Cluster) remove(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k := keyOf(s)
	if !controllerutil.ContainsFinalizer(s, podsnapshotv1.Finalizer) {
		return nil
	}
	location, err := c.storeOf(ctx, s)
	if err != nil {
		return err
	}
	if err := c.removeStored(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID], location); err != nil {
		c.deleting(ctx, s, err)
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	before := s.DeepCopy()
	controllerutil.RemoveFinalizer(s, podsnapshotv1.Finalizer)
	err = c.client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	c.latest.drop(k)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	return nil
}

// maxRemovals is how many removals may wait for a store at a time. A store that does not answer must not block all
// workers.
const maxRemovals = workers / 2

// errBusy means that maxRemovals removals are under way. The removal is retried.
var errBusy = errors.New("other snapshots are being removed")

// removeStored removes the stored data of the snapshot with this UID, from this node and from the store at location.
func (c *Cluster) removeStored(ctx context.Context, k snapshot.Key, uid, location string) error {
	select {
	case c.removals <- struct{}{}:
		defer func() { <-c.removals }()
	default:
		return errBusy
	}
	return c.node.Remove(ctx, k, uid, location)
}

// deleting says in the status why a PodSnapshot that is being deleted still exists.
func (c *Cluster) deleting(ctx context.Context, s *podsnapshotv1.PodSnapshot, why error) {
	before := s.DeepCopy()
	if !rules.SetReady(&s.Status.Conditions, s.Generation, false, podsnapshotv1.ReasonDeleting,
		"its data is still stored: "+why.Error()) {
		return
	}
	if err := c.client.Status().Patch(ctx, s, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		c.log.Warn("status not written", "snapshot", keyOf(s).String(), "error", err)
	}
}

// storeOf returns the location of the store that a PodSnapshot is in, or would be in: where it was stored or, failing
// that, the one in its storage config. Empty means the agents' own store.
func (c *Cluster) storeOf(ctx context.Context, s *podsnapshotv1.PodSnapshot) (string, error) {
	if at := rules.StoredAt(s); at != "" {
		return at, nil
	}
	name := s.Annotations[podsnapshotv1.AnnotationStorageConfig]
	if name == "" {
		return "", nil
	}
	config := new(podsnapshotv1.PodSnapshotStorageConfig)
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, config)
	if apierrors.IsNotFound(err) {
		return "", nil // so it is in no store, and never will be
	}
	if err != nil {
		return "", fmt.Errorf("read PodSnapshotStorageConfig %s: %w", name, err)
	}
	return rules.Location(config)
}

// serveDeleted removes what this node has of a snapshot whose PodSnapshot no longer exists.
func (c *Cluster) serveDeleted(ctx context.Context, e entry) error {
	if o, ok := c.orders.state(e.Key); ok && !o.ended && !o.spooled {
		return nil // it is requeued when the capture ends
	}
	s := new(podsnapshotv1.PodSnapshot)
	err := c.live.Get(ctx, named(e.Key), s)
	switch {
	case err == nil && string(s.UID) == e.Published:
		c.latest.put(s) // the cache does not have it yet
		return nil
	case err == nil: // another PodSnapshot has that name now
		if err := c.node.Forget(ctx, e.Key, e.UID); err != nil {
			return fmt.Errorf("forget %s: %w", e.Key, err)
		}
		return c.forget(ctx, e.Key)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read PodSnapshot %s: %w", e.Key, err)
	}
	location := ""
	if e.Plan != nil {
		location = e.Plan.Store
	}
	if err := c.removeStored(ctx, e.Key, e.UID, location); err != nil {
		return fmt.Errorf("remove what is left of PodSnapshot %s: %w", e.Key, err)
	}
	return c.forget(ctx, e.Key)
}

// forget forgets a snapshot that no longer exists, but not before the object that asked for it has its answer.
func (c *Cluster) forget(ctx context.Context, k snapshot.Key) error {
	c.latest.drop(k)
	if q, ok := c.requests.get(k); ok {
		c.requests.drop(q)
	}
	e, ok := c.ledger.get(k)
	if !ok {
		return nil
	}
	d, open := c.requesterOf(ctx, e)
	if !open {
		return c.ledger.drop(k)
	}
	e.Deleted = true
	if err := c.ledger.put(e); err != nil {
		return err
	}
	d.kick(c)
	return nil
}
