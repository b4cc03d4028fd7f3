package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// SleepChanged looks again at the PodSnapshots of a pod that has fallen asleep or woken.
func (rs *Requests) SleepChanged(pod snapshot.PodRef) {
	for _, k := range rs.ledger.of(pod.UID) {
		rs.snapshots.Kick(objects.Named(k))
	}
}

// sleepsOn reports whether the pod of a PodSnapshot of a sleep sleeps on it.
func (rs *Requests) sleepsOn(s *podsnapshotv1.PodSnapshot) bool {
	return rs.Node.Needed(objects.KeyOf(s), s.Annotations[podsnapshotv1.AnnotationSnapshotUID]) != ""
}

// showAsleep writes into the status of a PodSnapshot of a sleep whether its pod sleeps on it. The controller goes by it
// once the pod is gone. If the pod was deleted in its sleep while no agent could say so, its successors inherit it.
func (rs *Requests) showAsleep(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	if !rules.OfSleep(s) || !rules.Captured(s) {
		return nil
	}
	if inherited, err := rs.inheritEnded(ctx, s); inherited || err != nil {
		return err
	}
	asleep := rs.sleepsOn(s)
	return rs.writeStatus(ctx, s, func(s *podsnapshotv1.PodSnapshot) bool { return rules.SetAsleep(s, asleep) })
}

// inheritEnded decides what becomes of the snapshot of a sleep whose pod has ended in it. If the pod is being deleted,
// or is gone, and was to be saved, the snapshot serves the pod's successors from now on.
func (rs *Requests) inheritEnded(ctx context.Context, s *podsnapshotv1.PodSnapshot) (inherited bool, err error) {
	k := objects.KeyOf(s)
	pod, ended, err := rs.Node.EndedAsleep(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID])
	if err != nil || !ended {
		return false, err
	}
	deleted, save, err := rs.deletedAsleep(ctx, pod)
	switch {
	case err != nil:
		return false, err
	case !deleted && rs.sleepsOn(s): // its next sandbox is restored from it
		return false, nil
	}
	if _, inheritable := rules.Inheritable(s); inheritable && save {
		if err := rs.writeInherited(ctx, s); err != nil {
			return false, err
		}
		rs.log.Info("a pod was deleted in its sleep while no agent answered: its successors have its snapshot", "pod",
			pod.String(), "snapshot", k.String())
		inherited = true
	}
	return inherited, rs.Node.ForgetAsleep(pod)
}

// deletedAsleep reports whether a pod is being deleted or gone, and whether it was to be saved then. What its policy
// says counts while there is a Pod object; later, what it said when the pod fell asleep.
func (rs *Requests) deletedAsleep(ctx context.Context, ref snapshot.PodRef) (deleted, save bool, err error) {
	if rs.Objects.NamespaceEnds(ctx, ref.Namespace) {
		return true, false, nil
	}
	pod := new(corev1.Pod)
	err = rs.Objects.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, pod)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, false, fmt.Errorf("read pod %s: %w", ref, err)
	case err != nil, string(pod.UID) != ref.UID:
		return true, true, nil
	case pod.DeletionTimestamp == nil:
		return false, false, nil
	}
	policies, _, err := rs.Objects.Rules(ctx, pod.Namespace, rs.Objects.List)
	return true, err == nil && rules.SavedOnTermination(pod, policies), err
}

// errNotInherited: the snapshot of a sleep is not for the pod's successors.
var errNotInherited = errors.New("it sleeps, and went to sleep before its policy had pods saved when they are " +
	"deleted: wake a pod before its policy is changed")

// errSleepDeleted: somebody has deleted the PodSnapshot on which the pod sleeps.
var errSleepDeleted = errors.New("it sleeps, and the PodSnapshot of its sleep was deleted")

// inheritTime bounds one attempt to inherit: an API server that does not answer must not use up the pod's grace period.
const inheritTime = 5 * time.Second

// inherit makes the snapshot on which a pod sleeps that is being deleted one that serves its successors. It waits for
// the PodSnapshot, and for an API server that is away, as long as ctx lasts. It fails at once if it never can succeed.
func (rs *Requests) inherit(ctx context.Context, pod *corev1.Pod) error {
	pauses := wait.Backoff{Duration: objects.LookAgain / 10, Factor: 2, Jitter: 0.2, Steps: 100, Cap: inheritTime}
	for {
		news := rs.Objects.News.Listen()
		again := objects.LookAgain
		done, err := rs.tryInherit(ctx, pod)
		if done || hopeless(err) {
			return err
		}
		if err != nil {
			news, again = nil, pauses.Step()
		}
		select {
		case <-news:
		case <-time.After(again):
		case <-ctx.Done():
			return fmt.Errorf("the PodSnapshot of its sleep: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

// tryInherit is one attempt of inherit. It reports whether the snapshot serves successors.
func (rs *Requests) tryInherit(ctx context.Context, pod *corev1.Pod) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, inheritTime)
	defer cancel()
	s, err := rs.sleepOf(ctx, pod)
	if err != nil || s == nil {
		return false, err
	}
	if err := rs.writeInherited(ctx, s); err != nil {
		rs.Objects.Unsure(objects.KeyOf(s))
		return false, err
	}
	rs.log.Info("a pod is deleted in its sleep: its successors have its snapshot", "pod", rules.PodKey(pod),
		"snapshot", objects.KeyOf(s).String())
	return true, nil
}

// hopeless reports whether an attempt to inherit fails each time.
func hopeless(err error) bool {
	return errors.Is(err, errNotInherited) || errors.Is(err, errSleepDeleted) || apierrors.IsForbidden(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// sleepOf returns the PodSnapshot on which a pod sleeps, as the API server has it, or nil if there is none yet.
func (rs *Requests) sleepOf(ctx context.Context, pod *corev1.Pod) (*podsnapshotv1.PodSnapshot, error) {
	for _, k := range rs.ledger.of(string(pod.UID)) {
		s := new(podsnapshotv1.PodSnapshot)
		e, _ := rs.ledger.get(k)
		switch err := rs.Objects.Live.Get(ctx, objects.Named(k), s); {
		case apierrors.IsNotFound(err) && e.Published != "" && rs.Node.Needed(k, e.UID) != "":
			return nil, errSleepDeleted
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read PodSnapshot %s: %w", k, err)
		case rs.sleepsOn(s) && s.DeletionTimestamp != nil:
			return nil, errSleepDeleted
		case rs.sleepsOn(s):
			return s, nil
		}
	}
	return nil, nil
}

// writeInherited makes the snapshot of a sleep one that serves successors, unless it is one already.
func (rs *Requests) writeInherited(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	if !rules.OfSleep(s) { // somebody has asked for it, or it is inherited
		return nil
	}
	before := s.DeepCopy()
	if !rules.Inherit(s) {
		return errNotInherited
	}
	err := rs.Objects.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("PodSnapshot %s: %w", objects.KeyOf(s), err)
	}
	rs.Objects.Wrote(s)
	return nil
}
