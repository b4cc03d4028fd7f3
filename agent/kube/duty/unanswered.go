package duty

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/age"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Times after which the controller answers a trigger that the agent of the pod's node does not answer.
const (
	// lookTime is how long a trigger is left to the agents before the controller looks for its pod.
	lookTime = 500 * time.Millisecond
	// takeTime is how long the agent of a pod's node may take to take a trigger.
	takeTime = 30 * time.Second
	// workTime is how long an agent may work on a trigger.
	workTime = 15 * time.Minute
	// watchPause is how often a node is checked.
	watchPause = 15 * time.Second
)

// answerer answers triggers that no node's agent will answer.
type answerer struct {
	objects *objects.Objects
	judge   *age.Judge
}

// answerTrigger answers a trigger that no node's agent will answer.
func (a *answerer) answerTrigger(ctx context.Context, name client.ObjectKey) (reconcile.Result, error) {
	t := new(podsnapshotv1.PodSnapshotManualTrigger)
	if err := a.objects.Get(ctx, name, t); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if rules.Ended(t) {
		return reconcile.Result{}, nil
	}
	if wait := a.judge.Younger(t.CreationTimestamp.Time, lookTime); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	why, wait, err := a.unanswerable(ctx, t)
	if err != nil || why == "" {
		return reconcile.Result{RequeueAfter: wait}, err
	}
	return control.RetryConflict(client.IgnoreNotFound(a.objects.WriteTrigger(ctx, t,
		func(t *podsnapshotv1.PodSnapshotManualTrigger) { rules.Fail(t, why) })))
}

// unanswerable returns why no agent will answer a trigger, or when to check again.
func (a *answerer) unanswerable(ctx context.Context,
	t *podsnapshotv1.PodSnapshotManualTrigger,
) (why string, wait time.Duration, err error) {
	if t.Status.NodeName != "" {
		silent, err := a.objects.NodeSilent(ctx, t.Status.NodeName)
		switch {
		case err != nil:
			return "", 0, err
		case silent:
			return fmt.Sprintf(notice.NodeGone, t.Status.NodeName), 0, nil
		case a.judge.Younger(rules.TakenAt(t), workTime) < 0:
			return fmt.Sprintf(notice.NotFinished, t.Status.NodeName, workTime), 0, nil
		}
		return "", watchPause, nil
	}
	name := client.ObjectKey{Namespace: t.Namespace, Name: t.Spec.TargetPod}
	pod := new(corev1.Pod)
	err = a.objects.Live.Get(ctx, name, pod)
	switch wait := a.judge.Younger(t.CreationTimestamp.Time, takeTime); {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf(notice.NoPod, name, name.Namespace), 0, nil
	case err != nil:
		return "", 0, fmt.Errorf("read pod %s: %w", name, err)
	case pod.Spec.NodeName == "":
		return fmt.Sprintf(notice.PodNotBound, name), 0, nil
	case wait > 0:
		return "", wait, nil
	}
	if waits, err := a.waits(ctx, t); err != nil || waits {
		return "", watchPause, err
	}
	return fmt.Sprintf(notice.NoAgent, pod.Spec.NodeName, name), 0, nil
}

// waits reports whether a trigger waits for another trigger of its pod.
func (a *answerer) waits(ctx context.Context, t *podsnapshotv1.PodSnapshotManualTrigger) (bool, error) {
	all, err := a.objects.Triggers(ctx, t.Namespace, objects.TargetOf(t))
	if err != nil {
		return false, err
	}
	first := rules.First(all, t.Spec.TargetPod)
	return first != nil && rules.Taken(first), nil
}
