package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// serveDeletion does this node's part in the deletion of a PodSnapshot. The origin node removes all of it, but nothing
// from a bucket; another node removes its own copy, if any. It may be gone before that is done: see copies.
func (rs *Requests) serveDeletion(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k := objects.KeyOf(s)
	if s.Annotations[podsnapshotv1.AnnotationOriginNode] != rs.NodeName {
		return rs.Node.Forget(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID])
	}
	if j, ok := rs.jobs.state(k); ok && !j.ended && !j.spooled {
		return nil // it is requeued when the capture ends
	}
	location, err := rs.Objects.StoreOf(ctx, s)
	if err != nil {
		return err
	}
	if rs.sleepsOn(s) {
		return rs.outlive(ctx, s, location)
	}
	switch {
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

// outlive lets a PodSnapshot go although a pod sleeps on its snapshot. What this node has stays until the pod is awake
// or gone; a bucket's part goes at once. The ledger remembers it.
func (rs *Requests) outlive(ctx context.Context, s *podsnapshotv1.PodSnapshot, location string) error {
	k, uid := objects.KeyOf(s), s.Annotations[podsnapshotv1.AnnotationSnapshotUID]
	if err := rs.Node.Detach(ctx, k, uid); err != nil {
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	e, _ := rs.ledger.get(k)
	if e.UID != uid || e.Published != string(s.UID) || e.Plan == nil {
		e.Key, e.UID, e.Published, e.Plan = k, uid, string(s.UID), &rules.Plan{Store: location}
		e.Pod = snapshot.PodRef{
			Namespace: k.Namespace, Name: s.Annotations[podsnapshotv1.AnnotationOriginPod],
			UID: s.Annotations[podsnapshotv1.AnnotationOriginPodUID],
		}
		if err := rs.ledger.put(e); err != nil {
			return err
		}
	}
	switch {
	case !rules.InBucket(cmp.Or(location, rs.Store)):
		return rs.removals.Release(ctx, s)
	case s.Annotations[podsnapshotv1.AnnotationWithdrawn] == "":
		return rs.removals.Withdrawn(ctx, s)
	}
	return nil
}

// withdraw removes what this node has of a PodSnapshot that is being deleted, and leaves the rest to the controller.
func (rs *Requests) withdraw(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k := objects.KeyOf(s)
	if err := rs.Node.Withdraw(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID]); err != nil {
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	if s.Annotations[podsnapshotv1.AnnotationWithdrawn] != "" {
		return nil // perhaps before its pod woke
	}
	return rs.removals.Withdrawn(ctx, s)
}

// neededPause is how often it is looked whether a pod still sleeps on a snapshot that was deleted. A pod that wakes is
// known at once.
const neededPause = time.Minute

// serveDeleted removes what this node has of a snapshot whose PodSnapshot no longer exists. It returns when to look
// again, or 0. If the cluster was brought back from an older backup, nobody may have deleted that PodSnapshot: the
// error is of kind rollback.ErrRolledBack.
func (rs *Requests) serveDeleted(ctx context.Context, e entry) (again time.Duration, err error) {
	if gone, err := rs.deleted(ctx, e); !gone || err != nil {
		return 0, err
	}
	if err := rs.Remembers(ctx); err != nil {
		return 0, fmt.Errorf("PodSnapshot %s is missing: %w", e.Key, err)
	}
	if rs.Node.Needed(e.Key, e.UID) != "" {
		return wait.Jitter(neededPause, 0.2), rs.Node.Detach(ctx, e.Key, e.UID)
	}
	location := ""
	if e.Plan != nil {
		location = e.Plan.Store
	}
	if err := rs.removals.Data(ctx, e.Key, e.UID, location); errors.Is(err, storage.ErrDenied) {
		rs.log.Info("data of a snapshot whose PodSnapshot has gone is left to the controller's sweep", "snapshot",
			e.Key.String(), "reason", err)
	} else if err != nil {
		return 0, fmt.Errorf("remove what is left of PodSnapshot %s: %w", e.Key, err)
	}
	return 0, rs.forget(ctx, e.Key)
}

// deleted reports whether the PodSnapshot of a snapshot was deleted, and none has its name. If another one has, it
// removes what this node has.
func (rs *Requests) deleted(ctx context.Context, e entry) (gone bool, err error) {
	if j, ok := rs.jobs.state(e.Key); ok && !j.ended && !j.spooled {
		return false, nil // it is requeued when the capture ends
	}
	s := new(podsnapshotv1.PodSnapshot)
	err = rs.Objects.Live.Get(ctx, objects.Named(e.Key), s)
	switch {
	case err == nil && string(s.UID) == e.Published:
		rs.Objects.Wrote(s) // the cache does not have it yet
		return false, nil
	case err == nil: // another PodSnapshot has that name now
		if err := rs.Node.Forget(ctx, e.Key, e.UID); err != nil {
			return false, fmt.Errorf("forget %s: %w", e.Key, err)
		}
		return false, rs.forget(ctx, e.Key)
	case !apierrors.IsNotFound(err):
		return false, fmt.Errorf("read PodSnapshot %s: %w", e.Key, err)
	}
	return true, nil
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
