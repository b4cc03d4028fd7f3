package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// targetIndex indexes triggers by their pod, as "namespace/name".
const targetIndex = "pod"

func targetOf(o client.Object) []string {
	t := o.(*podsnapshotv1.PodSnapshotManualTrigger)
	return []string{t.Namespace + "/" + t.Spec.TargetPod}
}

// serveTrigger reconciles a trigger whose pod is, or was, on this node.
func (c *Cluster) serveTrigger(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	t := new(podsnapshotv1.PodSnapshotManualTrigger)
	if err := c.client.Get(ctx, r.NamespacedName, t); apierrors.IsNotFound(err) {
		c.orders.gone(requester{in: r.Namespace, trigger: r.Name}, asker{})
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	a := &askedByTrigger{c: c, t: t}
	if rules.Ended(t) {
		c.nextTurn(snapshot.PodRef{Namespace: t.Namespace, Name: t.Spec.TargetPod})
		return reconcile.Result{}, c.close(a)
	}
	if t.Status.NodeName != "" && t.Status.NodeName != c.cfg.NodeName {
		return reconcile.Result{}, nil
	}
	pod, err := c.onNode(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Spec.TargetPod})
	if err != nil {
		return reconcile.Result{}, err
	}
	if t.Status.NodeName == "" {
		if pod == nil {
			return reconcile.Result{}, nil
		}
		if first, err := c.firstTrigger(ctx, refOf(pod)); err != nil || first != t.Name {
			return reconcile.Result{}, err // nextTurn requeues the trigger
		}
	}
	return retryConflict(c.serve(ctx, a, pod))
}

// conflictPause is how long to wait after a conflict, because somebody else has just changed the object. The cache
// has the change by then.
const conflictPause = 30 * time.Millisecond

func retryConflict(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	return reconcile.Result{}, err
}

// firstTrigger returns the name of the trigger whose turn it is for a pod, or "" if there is none.
func (c *Cluster) firstTrigger(ctx context.Context, pod snapshot.PodRef) (string, error) {
	var all podsnapshotv1.PodSnapshotManualTriggerList
	if err := c.client.List(ctx, &all, client.InNamespace(pod.Namespace),
		client.MatchingFields{targetIndex: pod.String()}); err != nil {
		return "", fmt.Errorf("read triggers of pod %s: %w", pod, err)
	}
	waiting := all.Items[:0]
	for _, t := range all.Items {
		if !c.orders.done(triggerAsker(&t)) {
			waiting = append(waiting, t)
		}
	}
	if t := rules.First(waiting, pod.Name); t != nil {
		return t.Name, nil
	}
	return "", nil
}

// nextTurn requeues what waits for a pod: the trigger whose turn it is, and the pod with its annotation.
func (c *Cluster) nextTurn(pod snapshot.PodRef) {
	if t, err := c.firstTrigger(c.life, pod); err == nil && t != "" {
		c.triggers.kick(client.ObjectKey{Namespace: pod.Namespace, Name: t})
	}
	c.pods.kick(client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name})
}

// triggersOf returns the triggers that the change of a pod, or the deletion of a trigger for the same pod, may
// concern.
func (c *Cluster) triggersOf(ctx context.Context, o client.Object) []reconcile.Request {
	pod := client.ObjectKeyFromObject(o).String()
	if t, ok := o.(*podsnapshotv1.PodSnapshotManualTrigger); ok {
		pod = targetOf(t)[0]
	}
	var all podsnapshotv1.PodSnapshotManualTriggerList
	if err := c.client.List(ctx, &all, client.InNamespace(o.GetNamespace()),
		client.MatchingFields{targetIndex: pod}); err != nil {
		c.log.Warn("triggers not read", "pod", pod, "error", err)
		return nil
	}
	var out []reconcile.Request
	for i := range all.Items {
		if !rules.Ended(&all.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return out
}

// askedByTrigger implements asked.
type askedByTrigger struct {
	c *Cluster
	t *podsnapshotv1.PodSnapshotManualTrigger
}

func (a *askedByTrigger) requester() requester {
	return requester{in: a.t.Namespace, trigger: a.t.Name}
}

func (a *askedByTrigger) asker() asker { return triggerAsker(a.t) }

func (a *askedByTrigger) podName() string { return a.t.Spec.TargetPod }

func (a *askedByTrigger) taken() string { return a.t.Status.PodUID }

func (a *askedByTrigger) take(ctx context.Context, pod *corev1.Pod) error {
	return a.write(ctx, func(t *podsnapshotv1.PodSnapshotManualTrigger) {
		rules.Take(t, a.c.cfg.NodeName, string(pod.UID))
	})
}

func (a *askedByTrigger) complete(ctx context.Context, k snapshot.Key) error {
	return a.write(ctx, func(t *podsnapshotv1.PodSnapshotManualTrigger) { rules.Complete(t, k.Name) })
}

func (a *askedByTrigger) fail(ctx context.Context, why string) error {
	return a.write(ctx, func(t *podsnapshotv1.PodSnapshotManualTrigger) { rules.Fail(t, why) })
}

// write changes the trigger's status in one update. It fails on a conflict, because somebody else may have answered.
func (a *askedByTrigger) write(ctx context.Context, change func(*podsnapshotv1.PodSnapshotManualTrigger)) error {
	return writeTrigger(ctx, a.c.client, a.t, change)
}

func writeTrigger(ctx context.Context, c client.Client, t *podsnapshotv1.PodSnapshotManualTrigger,
	change func(*podsnapshotv1.PodSnapshotManualTrigger),
) error {
	before := t.DeepCopy()
	change(t)
	err := c.Status().Patch(ctx, t, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("status of trigger %s/%s: %w", t.Namespace, t.Name, err)
	}
	return nil
}
