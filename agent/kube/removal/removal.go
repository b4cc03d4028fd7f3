// Package removal removes the stored data of PodSnapshots that are being deleted, and then their finalizers. From
// buckets the controller removes it, once the agent of the node where a snapshot was made has withdrawn its part. From
// other stores that agent removes it, and the controller if the agent does not.
package removal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Data removes what this process can reach of the snapshot with that UID, also from the store at location.
type Data func(ctx context.Context, k snapshot.Key, uid, location string) error

// Removals are the removals of one process. Its methods may be called concurrently.
type Removals struct {
	objects *objects.Objects
	data    Data
	log     *slog.Logger
	under   chan struct{} // has an element for each removal under way
}

// most is how many removals may wait for a store at a time. A store that does not answer must not block all workers.
const most = control.Workers / 2

// errBusy means that most removals are under way. The removal is retried.
var errBusy = errors.New("other snapshots are being removed")

// New returns the removals of a process that removes data by that function.
func New(o *objects.Objects, data Data, log *slog.Logger) *Removals {
	return &Removals{objects: o, data: data, log: log, under: make(chan struct{}, most)}
}

// Data removes the stored data of the snapshot with this UID.
func (r *Removals) Data(ctx context.Context, k snapshot.Key, uid, location string) error {
	select {
	case r.under <- struct{}{}:
		defer func() { <-r.under }()
	default:
		return errBusy
	}
	return r.data(ctx, k, uid, location)
}

// Finalize removes the stored data of a PodSnapshot that is being deleted, and then its finalizer. If the data cannot
// be removed, the status says why.
func (r *Removals) Finalize(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	if !controllerutil.ContainsFinalizer(s, podsnapshotv1.Finalizer) {
		return nil
	}
	location, err := r.objects.StoreOf(ctx, s)
	if err != nil {
		return err
	}
	k := objects.KeyOf(s)
	if err := r.Data(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID], location); err != nil {
		r.deleting(ctx, s, err)
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	r.log.Info("the data of a PodSnapshot that is being deleted is removed", "snapshot", k.String(), "store", location)
	return r.Release(ctx, s)
}

// Withdrawn says of a PodSnapshot that is being deleted that this node stores nothing of it any more. A pod that sleeps
// may still need what the node has.
func (r *Removals) Withdrawn(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	before := s.DeepCopy()
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[podsnapshotv1.AnnotationWithdrawn] = "true"
	k := objects.KeyOf(s)
	err := r.objects.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	r.objects.Unsure(k)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	return nil
}

// Release removes the finalizer of a PodSnapshot that is being deleted.
func (r *Removals) Release(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k, before := objects.KeyOf(s), s.DeepCopy()
	if !controllerutil.RemoveFinalizer(s, podsnapshotv1.Finalizer) {
		return nil
	}
	err := r.objects.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	r.objects.Unsure(k)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	return nil
}

// deleting says in the status why a PodSnapshot that is being deleted still exists.
func (r *Removals) deleting(ctx context.Context, s *podsnapshotv1.PodSnapshot, why error) {
	before := s.DeepCopy()
	if !rules.SetReady(&s.Status.Conditions, s.Generation, false, podsnapshotv1.ReasonDeleting,
		fmt.Sprintf(notice.DataStays, why)) {
		return
	}
	if err := r.objects.Status().Patch(ctx, s, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		r.log.Warn("status not written", "snapshot", objects.KeyOf(s).String(), "error", err)
	}
}
