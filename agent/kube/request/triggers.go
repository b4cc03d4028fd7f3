package request

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// serveTrigger reconciles a trigger whose pod is, or was, on this node. The triggers of a pod are served one
// after the other: rules.First decides whose turn it is.
func (rs *Requests) serveTrigger(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	t := new(podsnapshotv1.PodSnapshotManualTrigger)
	if err := rs.Objects.Get(ctx, r.NamespacedName, t); apierrors.IsNotFound(err) {
		rs.jobs.gone(requester{in: r.Namespace, trigger: r.Name}, asker{})
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	a := &askedByTrigger{rs: rs, t: t}
	if rules.Ended(t) {
		rs.nextTurn(snapshot.PodRef{Namespace: t.Namespace, Name: t.Spec.TargetPod})
		return reconcile.Result{}, rs.close(a)
	}
	if t.Status.NodeName != "" && t.Status.NodeName != rs.NodeName {
		return reconcile.Result{}, nil
	}
	pod, err := rs.Objects.PodHere(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Spec.TargetPod})
	if err != nil {
		return reconcile.Result{}, err
	}
	if t.Status.NodeName == "" {
		if pod == nil {
			return reconcile.Result{}, nil
		}
		if first, err := rs.firstTrigger(ctx, objects.RefOf(pod)); err != nil || first != t.Name {
			return reconcile.Result{}, err // nextTurn requeues the trigger
		}
	}
	return control.RetryConflict(rs.serve(ctx, a, pod))
}

// firstTrigger returns the name of the trigger whose turn it is for a pod, or "" if there is none.
func (rs *Requests) firstTrigger(ctx context.Context, pod snapshot.PodRef) (string, error) {
	all, err := rs.Objects.Triggers(ctx, pod.Namespace, pod.String())
	if err != nil {
		return "", err
	}
	waiting := all[:0]
	for _, t := range all {
		if !rs.over(triggerAsker(&t)) {
			waiting = append(waiting, t)
		}
	}
	if t := rules.First(waiting, pod.Name); t != nil {
		return t.Name, nil
	}
	return "", nil
}

// nextTurn requeues what waits for a pod: the trigger whose turn it is, and the pod with its annotation.
func (rs *Requests) nextTurn(pod snapshot.PodRef) {
	if t, err := rs.firstTrigger(rs.life, pod); err == nil && t != "" {
		rs.triggers.Kick(client.ObjectKey{Namespace: pod.Namespace, Name: t})
	}
	rs.pods.Kick(client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name})
}

// triggersOf returns the triggers that the change of a pod, or the deletion of a trigger for the same pod, may
// concern.
func (rs *Requests) triggersOf(ctx context.Context, o client.Object) []reconcile.Request {
	pod := client.ObjectKeyFromObject(o).String()
	if t, ok := o.(*podsnapshotv1.PodSnapshotManualTrigger); ok {
		pod = objects.TargetOf(t)
	}
	all, err := rs.Objects.Triggers(ctx, o.GetNamespace(), pod)
	if err != nil {
		rs.log.Warn("triggers not read", "error", err)
		return nil
	}
	var out []reconcile.Request
	for i := range all {
		if !rules.Ended(&all[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
		}
	}
	return out
}

// askedByTrigger implements asked.
type askedByTrigger struct {
	rs *Requests
	t  *podsnapshotv1.PodSnapshotManualTrigger
}

func (a *askedByTrigger) requester() requester {
	return requester{in: a.t.Namespace, trigger: a.t.Name}
}

func (a *askedByTrigger) asker() asker { return triggerAsker(a.t) }

func (a *askedByTrigger) podName() string { return a.t.Spec.TargetPod }

func (a *askedByTrigger) taken() string { return a.t.Status.PodUID }

func (a *askedByTrigger) take(ctx context.Context, pod *corev1.Pod) error {
	return a.write(ctx, func(t *podsnapshotv1.PodSnapshotManualTrigger) {
		rules.Take(t, a.rs.NodeName, string(pod.UID))
	})
}

func (a *askedByTrigger) wait(ctx context.Context, message string) error {
	if !rules.Wait(a.t.DeepCopy(), message) {
		return nil
	}
	return a.write(ctx, func(t *podsnapshotv1.PodSnapshotManualTrigger) { rules.Wait(t, message) })
}

func (a *askedByTrigger) complete(ctx context.Context, k snapshot.Key, warning string) error {
	return a.write(ctx, func(t *podsnapshotv1.PodSnapshotManualTrigger) { rules.Complete(t, k.Name, warning) })
}

func (a *askedByTrigger) fail(ctx context.Context, why string) error {
	return a.write(ctx, func(t *podsnapshotv1.PodSnapshotManualTrigger) { rules.Fail(t, why) })
}

// write changes the trigger's status in one update. It fails on a conflict, because somebody else may have answered.
func (a *askedByTrigger) write(ctx context.Context, change func(*podsnapshotv1.PodSnapshotManualTrigger)) error {
	return a.rs.Objects.WriteTrigger(ctx, a.t, change)
}
