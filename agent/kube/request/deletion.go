package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"diapause.dev/agent/kube/ending"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/removal"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// deletions do this node's part in the deletion of PodSnapshots.
type deletions struct {
	objects   *objects.Objects
	node      deleting
	needs     ending.Needing
	nodeName  string
	store     string // location of the agent's own store
	records   *record.Records
	waiters   *waiters
	removals  *removal.Removals
	remembers func(context.Context) error // see Config.Remembers
	log       *slog.Logger
}

// deleting is what deletions need of the agent.
type deleting interface {
	forgetter
	// Detach has the snapshot with that UID stay on this node, which then stores nothing more of it elsewhere.
	Detach(ctx context.Context, key snapshot.Key, uid string) error
}

// data returns what removes the data of a snapshot from this node and from its store.
func data(node deleting) removal.Data {
	return func(ctx context.Context, k snapshot.Key, uid, location string) error {
		return node.Remove(ctx, snapshots.Removal{
			ID: snapshots.ID{Key: k, UID: uid}, From: snapshots.FromSpool | snapshots.FromStore, Location: location,
			InUse: snapshots.InUseIgnored,
		})
	}
}

// serve does this node's part in the deletion of a PodSnapshot. The origin node removes all of it, but nothing
// from a bucket; another node removes its own copy, if any. It may be gone before that is done: see copies.
func (d *deletions) serve(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k := objects.KeyOf(s)
	if s.Annotations[podsnapshotv1.AnnotationOriginNode] != d.nodeName {
		return forget(ctx, d.node, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID])
	}
	if j, ok := d.records.Jobs.State(k); ok && !j.Ended && !j.Spooled {
		return nil // it is requeued when the capture ends
	}
	location, err := d.objects.StoreOf(ctx, s)
	if err != nil {
		return err
	}
	if ending.SleepsOn(d.needs, s) {
		return d.outlive(ctx, s, location)
	}
	switch {
	case rules.InBucket(cmp.Or(location, d.store)):
		err = d.withdraw(ctx, s)
	default:
		err = d.removals.Finalize(ctx, s)
	}
	if err != nil {
		return err
	}
	return d.forget(ctx, k)
}

// outlive lets a PodSnapshot go although a pod sleeps on its snapshot. What this node has stays until the pod is awake
// or gone; a bucket's part goes at once. The ledger remembers it.
func (d *deletions) outlive(ctx context.Context, s *podsnapshotv1.PodSnapshot, location string) error {
	k, uid := objects.KeyOf(s), s.Annotations[podsnapshotv1.AnnotationSnapshotUID]
	if err := d.node.Detach(ctx, k, uid); err != nil {
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	e, _ := d.records.Ledger.Get(k)
	if e.UID != uid || e.Published != string(s.UID) || e.Plan == nil {
		e.Key, e.UID, e.Published, e.Plan = k, uid, string(s.UID), &rules.Plan{Store: location}
		e.Pod = snapshot.PodRef{
			Namespace: k.Namespace, Name: s.Annotations[podsnapshotv1.AnnotationOriginPod],
			UID: s.Annotations[podsnapshotv1.AnnotationOriginPodUID],
		}
		if err := d.records.Ledger.Put(e); err != nil {
			return err
		}
	}
	switch {
	case !rules.InBucket(cmp.Or(location, d.store)):
		return d.removals.Release(ctx, s)
	case s.Annotations[podsnapshotv1.AnnotationWithdrawn] == "":
		return d.removals.Withdrawn(ctx, s)
	}
	return nil
}

// withdraw removes what this node has of a PodSnapshot that is being deleted, and leaves the rest to the controller.
func (d *deletions) withdraw(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	k := objects.KeyOf(s)
	id := snapshots.ID{Key: k, UID: s.Annotations[podsnapshotv1.AnnotationSnapshotUID]}
	err := d.node.Remove(ctx, snapshots.Removal{ID: id, From: snapshots.FromSpool, InUse: snapshots.InUseIgnored})
	if err != nil {
		return fmt.Errorf("delete PodSnapshot %s: %w", k, err)
	}
	if s.Annotations[podsnapshotv1.AnnotationWithdrawn] != "" {
		return nil // perhaps before its pod woke
	}
	return d.removals.Withdrawn(ctx, s)
}

// neededPause is how often it is looked whether a pod still sleeps on a snapshot that was deleted. A pod that wakes is
// known at once.
const neededPause = time.Minute

// finish removes what this node has of a snapshot whose PodSnapshot no longer exists. It returns when to look
// again, or 0. If the cluster was brought back from an older backup, nobody may have deleted that PodSnapshot: the
// error is of kind rollback.ErrRolledBack.
func (d *deletions) finish(ctx context.Context, e record.Entry) (again time.Duration, err error) {
	if gone, err := d.deleted(ctx, e); !gone || err != nil {
		return 0, err
	}
	if err := d.remembers(ctx); err != nil {
		return 0, fmt.Errorf("PodSnapshot %s is missing: %w", e.Key, err)
	}
	if d.needs.Needed(e.Key, e.UID) != "" {
		return wait.Jitter(neededPause, 0.2), d.node.Detach(ctx, e.Key, e.UID)
	}
	location := ""
	if e.Plan != nil {
		location = e.Plan.Store
	}
	if err := d.removals.Data(ctx, e.Key, e.UID, location); errors.Is(err, storage.ErrDenied) {
		d.log.Info("data of a snapshot whose PodSnapshot has gone is left to the controller's sweep", "snapshot",
			e.Key.String(), "reason", err)
	} else if err != nil {
		return 0, fmt.Errorf("remove what is left of PodSnapshot %s: %w", e.Key, err)
	}
	return 0, d.forget(ctx, e.Key)
}

// deleted reports whether the PodSnapshot of a snapshot was deleted, and none has its name. If another one has, it
// removes what this node has.
func (d *deletions) deleted(ctx context.Context, e record.Entry) (gone bool, err error) {
	if j, ok := d.records.Jobs.State(e.Key); ok && !j.Ended && !j.Spooled {
		return false, nil // it is requeued when the capture ends
	}
	s := new(podsnapshotv1.PodSnapshot)
	err = d.objects.Live.Get(ctx, objects.Named(e.Key), s)
	switch {
	case err == nil && string(s.UID) == e.Published:
		d.objects.Wrote(s) // the cache does not have it yet
		return false, nil
	case err == nil: // another PodSnapshot has that name now
		if err := forget(ctx, d.node, e.Key, e.UID); err != nil {
			return false, fmt.Errorf("forget %s: %w", e.Key, err)
		}
		return false, d.forget(ctx, e.Key)
	case !apierrors.IsNotFound(err):
		return false, fmt.Errorf("read PodSnapshot %s: %w", e.Key, err)
	}
	return true, nil
}

// forget forgets a snapshot that no longer exists, but not before the object that asked for it has its answer.
func (d *deletions) forget(ctx context.Context, k snapshot.Key) error {
	d.objects.Unsure(k)
	if q, ok := d.records.Reported.Get(k); ok {
		d.records.Reported.Drop(q)
	}
	e, ok := d.records.Ledger.Get(k)
	if !ok {
		return nil
	}
	asked, open := d.waiters.requesterOf(ctx, e)
	if !open {
		return d.records.Ledger.Drop(k)
	}
	e.Deleted = true
	if err := d.records.Ledger.Put(e); err != nil {
		return err
	}
	d.waiters.kick(asked)
	return nil
}
