package request

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/record"
	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// serveTrigger reconciles a trigger whose pod is, or was, on this node. The triggers of a pod are served one
// after the other: rules.First decides whose turn it is.
func (sv *server) serveTrigger(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	t := new(podsnapshotv1.PodSnapshotManualTrigger)
	if err := sv.objects.Get(ctx, r.NamespacedName, t); apierrors.IsNotFound(err) {
		sv.records.Jobs.Gone(record.Requester{Namespace: r.Namespace, Trigger: r.Name}, record.Asker{})
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	a := &askedByTrigger{objects: sv.objects, nodeName: sv.nodeName, t: t}
	if rules.Ended(t) {
		sv.waiters.nextTurn(snapshot.PodRef{Namespace: t.Namespace, Name: t.Spec.TargetPod})
		return reconcile.Result{}, sv.close(a)
	}
	if t.Status.NodeName != "" && t.Status.NodeName != sv.nodeName {
		return reconcile.Result{}, nil
	}
	pod, err := sv.objects.PodHere(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Spec.TargetPod})
	if err != nil {
		return reconcile.Result{}, err
	}
	if t.Status.NodeName == "" {
		if pod == nil {
			return reconcile.Result{}, nil
		}
		if first, err := sv.waiters.firstTrigger(ctx, objects.RefOf(pod)); err != nil || first != t.Name {
			return reconcile.Result{}, err // nextTurn requeues the trigger
		}
	}
	return control.RetryConflict(sv.serve(ctx, a, pod))
}

// askedByTrigger implements asked.
type askedByTrigger struct {
	objects  *objects.Objects
	nodeName string
	t        *podsnapshotv1.PodSnapshotManualTrigger
}

func (a *askedByTrigger) requester() record.Requester {
	return record.Requester{Namespace: a.t.Namespace, Trigger: a.t.Name}
}

func (a *askedByTrigger) asker() record.Asker { return record.TriggerAsker(a.t) }

func (a *askedByTrigger) podName() string { return a.t.Spec.TargetPod }

func (a *askedByTrigger) taken() string { return a.t.Status.PodUID }

func (a *askedByTrigger) take(ctx context.Context, pod *corev1.Pod) error {
	return a.write(ctx, func(t *podsnapshotv1.PodSnapshotManualTrigger) {
		rules.Take(t, a.nodeName, string(pod.UID))
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
	return a.objects.WriteTrigger(ctx, a.t, change)
}
