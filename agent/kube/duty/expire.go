package duty

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/age"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/removal"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/kube/sightings"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// keeper decides how long PodSnapshots are kept, and ends deletions that their nodes do not end.
type keeper struct {
	objects   *objects.Objects
	sightings *sightings.Sightings
	stores    sharer
	removals  *removal.Removals
	judge     *age.Judge
	store     string // location of the agents' own store
	log       *slog.Logger
}

// sharer tells whether a store is visible to the controller and all nodes.
type sharer interface{ Shared(location string) bool }

// expireOrWatch deletes a PodSnapshot that has expired or that its node asks to delete, and marks one that was lost
// with its node. If the PodSnapshot is neither, expireOrWatch looks at it again later.
//
// It deletes only the object, and the finalizer keeps that until the stored bytes are gone. Those in a bucket are
// deleted here, by finish, as soon as the origin node has withdrawn. Others are deleted by request.Requests on the
// origin node. If neither has happened after originTime, finish looks at it.
func (k *keeper) expireOrWatch(ctx context.Context, name client.ObjectKey) (reconcile.Result, error) {
	s := new(podsnapshotv1.PodSnapshot)
	if err := k.objects.Get(ctx, name, s); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if s.DeletionTimestamp != nil {
		if wait := k.judge.Younger(s.DeletionTimestamp.Time, originTime); wait > 0 && !withdrawn(s) {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		return k.finish(ctx, s)
	}
	if s.Annotations[podsnapshotv1.AnnotationRemove] != "" {
		return reconcile.Result{}, discard(ctx, k.objects, k.log, s, "it is removed on its node")
	}
	if rules.OfSleep(s) && !rules.Lost(s) {
		return k.serveSleep(ctx, s)
	}
	policy, err := k.objects.PolicyOf(ctx, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if changed, err := k.correctAccess(ctx, s); changed || err != nil {
		return reconcile.Result{}, err // a change brings it back
	}
	at, why := rules.Expiry(policy, s)
	left := k.left(at)
	if left < 0 {
		return reconcile.Result{}, discard(ctx, k.objects, k.log, s, why)
	}
	wait, err := k.checkOrigin(ctx, s)
	if left > 0 && (wait == 0 || left < wait) {
		wait = max(left, time.Second)
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// left returns how long it is until something expires; it is negative if that is over. A zero time never expires: the
// result is 0. If it is not certain what time it is, nothing expires until it is.
func (k *keeper) left(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	now, err := k.judge.Now()
	switch {
	case err != nil:
		return wait.Jitter(age.Pause, 0.2)
	case now.Before(at):
		return at.Sub(now)
	}
	return -1
}

// correctAccess sets the time of a snapshot's last use to now if it is in the future. Every agent may write it, so a
// node that was taken over could have written one after which the snapshot never expires. To take it for the present
// is not enough, as that moves on, too. It reports whether it has changed the snapshot. If it is not certain what time
// it is, nothing expires.
func (k *keeper) correctAccess(ctx context.Context, s *podsnapshotv1.PodSnapshot) (changed bool, err error) {
	t := s.Status.LastAccessTime
	if t == nil {
		return false, nil
	}
	now, err := k.objects.Clock.Agreed()
	if err != nil || !t.After(now.Add(objects.MaxSkew)) {
		return false, nil
	}
	before := s.DeepCopy()
	s.Status.LastAccessTime = new(metav1.NewTime(now))
	k.log.Warn("a snapshot's last use is in the future: it counts as used now", "snapshot", objects.KeyOf(s).String(),
		"time", t.Time)
	err = k.objects.Status().Patch(ctx, s, client.MergeFrom(before))
	return true, client.IgnoreNotFound(err)
}

// localPause is how often the node of a node-local snapshot is checked. There may be many such snapshots.
const localPause = 15 * time.Minute

// originTime is how long a snapshot's origin may take to delete it before the controller does.
const originTime = 3 * time.Second

// withdrawn reports whether the origin node has nothing left of a PodSnapshot that is being deleted.
func withdrawn(s *podsnapshotv1.PodSnapshot) bool {
	return s.Annotations[podsnapshotv1.AnnotationWithdrawn] != ""
}

// finish ends a deletion that the origin node has not ended. What is on that node alone only that node can remove, and
// what it has not stored yet it may be about to store. The controller waits for it while it is alive; otherwise the
// node removes its copy when it is back.
func (k *keeper) finish(ctx context.Context, s *podsnapshotv1.PodSnapshot) (reconcile.Result, error) {
	location, err := k.objects.StoreOf(ctx, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	location = cmp.Or(location, k.store)
	certain := withdrawn(s) || rules.Replicated(s) // that nobody is storing it
	shared := certain || !rules.NodeLocal(s) && k.stores.Shared(location)
	if certain || shared && !rules.InBucket(location) {
		return control.RetryConflict(k.removals.Finalize(ctx, s))
	}
	silent, err := k.objects.NodeSilent(ctx, s.Annotations[podsnapshotv1.AnnotationOriginNode])
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !silent:
		return reconcile.Result{RequeueAfter: wait.Jitter(watchPause, 0.2)}, nil
	case shared:
		return control.RetryConflict(k.removals.Finalize(ctx, s))
	}
	return control.RetryConflict(k.removals.Release(ctx, s))
}

// discard deletes exactly this version of a PodSnapshot.
func discard(ctx context.Context, o *objects.Objects, log *slog.Logger, s *podsnapshotv1.PodSnapshot,
	why string,
) error {
	log.Info("snapshot is deleted", "snapshot", objects.KeyOf(s).String(), "reason", why)
	err := o.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete PodSnapshot %s: %w", objects.KeyOf(s), err)
	}
	return nil
}

// checkOrigin marks a snapshot as failed if its only copy was on a node that has left the cluster. It returns when to
// check again, or 0 if the snapshot no longer depends on its node.
func (k *keeper) checkOrigin(ctx context.Context, s *podsnapshotv1.PodSnapshot) (time.Duration, error) {
	name := s.Annotations[podsnapshotv1.AnnotationOriginNode]
	if rules.Replicated(s) || rules.Lost(s) || name == "" {
		return 0, nil
	}
	pause := watchPause
	if rules.NodeLocal(s) {
		pause = localPause
	}
	switch gone, err := k.objects.NodeGone(ctx, name); {
	case err != nil:
		return 0, err
	case !gone:
		return wait.Jitter(pause, 0.2), nil
	}
	before := s.DeepCopy()
	rules.SetProgress(s, rules.Progress{Failed: fmt.Sprintf(notice.OnlyCopyLost, name)})
	err := k.objects.Status().Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return control.ConflictPause, nil
	}
	return 0, client.IgnoreNotFound(err)
}
