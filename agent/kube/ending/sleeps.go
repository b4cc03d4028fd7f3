package ending

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Sleeps show which pods sleep on their PodSnapshots, and have the successors of those that end in their sleep inherit
// them. Its methods may be called concurrently.
type Sleeps struct {
	objects *objects.Objects
	needs   Needing
	ended   Ended
	ledger  *record.Ledger
	log     *slog.Logger
}

// NewSleeps returns the sleeps of a node.
func NewSleeps(o *objects.Objects, needs Needing, ended Ended, l *record.Ledger, log *slog.Logger) *Sleeps {
	return &Sleeps{objects: o, needs: needs, ended: ended, ledger: l, log: log}
}

// Ended tell which pods have ended in their sleep. *asleep.Reminders implements it.
type Ended interface {
	// EndedAsleep returns the pod that slept on the snapshot with that UID, and has had no sandbox since. Ok is false if
	// there is none. It is remembered until Forget is called, for an hour at most.
	EndedAsleep(ctx context.Context, key snapshot.Key, uid string) (pod snapshot.PodRef, ok bool, err error)
	Forget(pod snapshot.PodRef) error
}

// Needing tells which pods need snapshots. *restore.Needs implements it.
type Needing interface {
	// Needed returns the pod that sleeps on the snapshot with that UID, or "".
	Needed(key snapshot.Key, uid string) (pod string)
}

// SleepsOn reports whether the pod of a PodSnapshot of a sleep sleeps on it.
func SleepsOn(node Needing, s *podsnapshotv1.PodSnapshot) bool {
	return node.Needed(objects.KeyOf(s), s.Annotations[podsnapshotv1.AnnotationSnapshotUID]) != ""
}

// Show writes into the status of a PodSnapshot of a sleep whether its pod sleeps on it. The controller goes by it
// once the pod is gone. If the pod was deleted in its sleep while no agent could say so, its successors inherit it.
func (sl *Sleeps) Show(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	if !rules.OfSleep(s) || !rules.Captured(s) {
		return nil
	}
	if inherited, err := sl.inheritEnded(ctx, s); inherited || err != nil {
		return err
	}
	asleep := SleepsOn(sl.needs, s)
	return sl.objects.WriteStatus(ctx, s, func(s *podsnapshotv1.PodSnapshot) bool { return rules.SetAsleep(s, asleep) })
}

// inheritEnded decides what becomes of the snapshot of a sleep whose pod has ended in it. If the pod is being deleted,
// or is gone, and was to be saved, the snapshot serves the pod's successors from now on.
func (sl *Sleeps) inheritEnded(ctx context.Context, s *podsnapshotv1.PodSnapshot) (inherited bool, err error) {
	k := objects.KeyOf(s)
	pod, ended, err := sl.ended.EndedAsleep(ctx, k, s.Annotations[podsnapshotv1.AnnotationSnapshotUID])
	if err != nil || !ended {
		return false, err
	}
	deleted, save, err := sl.deletedAsleep(ctx, pod)
	switch {
	case err != nil:
		return false, err
	case !deleted && SleepsOn(sl.needs, s): // its next sandbox is restored from it
		return false, nil
	}
	if _, inheritable := rules.Inheritable(s); inheritable && save {
		if err := sl.writeInherited(ctx, s); err != nil {
			return false, err
		}
		sl.log.Info("a pod was deleted in its sleep while no agent answered: its successors have its snapshot", "pod",
			pod.String(), "snapshot", k.String())
		inherited = true
	}
	return inherited, sl.ended.Forget(pod)
}

// deletedAsleep reports whether a pod is being deleted or gone, and whether it was to be saved then. What its policy
// says counts while there is a Pod object; later, what it said when the pod fell asleep.
func (sl *Sleeps) deletedAsleep(ctx context.Context, ref snapshot.PodRef) (deleted, save bool, err error) {
	if sl.objects.IDs.NamespaceEnds(ctx, ref.Namespace) {
		return true, false, nil
	}
	pod := new(corev1.Pod)
	err = sl.objects.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, pod)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, false, fmt.Errorf("read pod %s: %w", ref, err)
	case err != nil, string(pod.UID) != ref.UID:
		return true, true, nil
	case pod.DeletionTimestamp == nil:
		return false, false, nil
	}
	policies, _, err := sl.objects.Rules(ctx, pod.Namespace, sl.objects.List)
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
func (sl *Sleeps) inherit(ctx context.Context, pod *corev1.Pod) error {
	pauses := wait.Backoff{Duration: objects.LookAgain / 10, Factor: 2, Jitter: 0.2, Steps: 100, Cap: inheritTime}
	for {
		news := sl.objects.News.Listen()
		again := objects.LookAgain
		done, err := sl.tryInherit(ctx, pod)
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
func (sl *Sleeps) tryInherit(ctx context.Context, pod *corev1.Pod) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, inheritTime)
	defer cancel()
	s, err := sl.sleepOf(ctx, pod)
	if err != nil || s == nil {
		return false, err
	}
	if err := sl.writeInherited(ctx, s); err != nil {
		sl.objects.Unsure(objects.KeyOf(s))
		return false, err
	}
	sl.log.Info("a pod is deleted in its sleep: its successors have its snapshot", "pod", rules.PodKey(pod),
		"snapshot", objects.KeyOf(s).String())
	return true, nil
}

// hopeless reports whether an attempt to inherit fails each time.
func hopeless(err error) bool {
	return errors.Is(err, errNotInherited) || errors.Is(err, errSleepDeleted) || apierrors.IsForbidden(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// sleepOf returns the PodSnapshot on which a pod sleeps, as the API server has it, or nil if there is none yet.
func (sl *Sleeps) sleepOf(ctx context.Context, pod *corev1.Pod) (*podsnapshotv1.PodSnapshot, error) {
	for _, k := range sl.ledger.Of(string(pod.UID)) {
		s := new(podsnapshotv1.PodSnapshot)
		e, _ := sl.ledger.Get(k)
		switch err := sl.objects.Live.Get(ctx, objects.Named(k), s); {
		case apierrors.IsNotFound(err) && e.Published != "" && sl.needs.Needed(k, e.UID) != "":
			return nil, errSleepDeleted
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read PodSnapshot %s: %w", k, err)
		case SleepsOn(sl.needs, s) && s.DeletionTimestamp != nil:
			return nil, errSleepDeleted
		case SleepsOn(sl.needs, s):
			return s, nil
		}
	}
	return nil, nil
}

// writeInherited makes the snapshot of a sleep one that serves successors, unless it is one already.
func (sl *Sleeps) writeInherited(ctx context.Context, s *podsnapshotv1.PodSnapshot) error {
	if !rules.OfSleep(s) { // somebody has asked for it, or it is inherited
		return nil
	}
	before := s.DeepCopy()
	if !rules.Inherit(s) {
		return errNotInherited
	}
	err := sl.objects.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("PodSnapshot %s: %w", objects.KeyOf(s), err)
	}
	sl.objects.Wrote(s)
	return nil
}
