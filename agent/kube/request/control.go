package request

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rollback"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// Control sets up the controllers of triggers, pods and PodSnapshots.
func (rs *Requests) Control(mgr manager.Manager) error {
	trigger, pod, snapshot := &podsnapshotv1.PodSnapshotManualTrigger{}, &corev1.Pod{}, &podsnapshotv1.PodSnapshot{}
	w, each := rs.waiters, &handler.EnqueueRequestForObject{}
	for _, x := range []struct {
		b     *builder.Builder
		name  string
		serve reconcile.Func
	}{
		{control.Controller(mgr, &w.triggers).Watches(trigger, each).
			Watches(trigger, handler.EnqueueRequestsFromMapFunc(w.triggersOf), builder.WithPredicates(onlyDeletions)).
			Watches(pod, handler.EnqueueRequestsFromMapFunc(w.triggersOf)), "trigger", rs.server.serveTrigger},
		{control.Controller(mgr, &w.pods).Watches(pod, each), "pod", rs.server.servePod},
		{control.Controller(mgr, &w.snapshots).Watches(snapshot, rs.snapshotEvents()), "snapshot", rs.serveSnapshot},
	} {
		if err := control.Complete(x.b, x.name, x.serve); err != nil {
			return err
		}
	}
	return nil
}

// onlyDeletions passes only deletions.
var onlyDeletions = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// queue is a controller's queue.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// snapshotEvents wakes those that wait for news of PodSnapshots, and requeues the PodSnapshots that concern this
// node.
func (rs *Requests) snapshotEvents() handler.Funcs {
	seen := func(s client.Object, q queue) {
		rs.objects.News.Ring()
		own, deleted := s.GetAnnotations()[podsnapshotv1.AnnotationOriginNode] == rs.nodeName, s.GetDeletionTimestamp() != nil
		if deleted && !own {
			rs.copies.note(s)
		}
		if own || deleted {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if s, ok := e.Object.(*podsnapshotv1.PodSnapshot); ok {
				rs.publisher.seen(s)
			}
			seen(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { seen(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			if s, ok := e.Object.(*podsnapshotv1.PodSnapshot); ok {
				rs.objects.Unsure(objects.KeyOf(s))
			}
			seen(e.Object, q)
		},
	}
}

// serveSnapshot reconciles a PodSnapshot with what this node's agent knows about it.
func (rs *Requests) serveSnapshot(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	k := snapshot.Key{Namespace: r.Namespace, Name: r.Name}
	if err := rs.copies.remove(ctx, k); err != nil {
		return reconcile.Result{}, err
	}
	s, err := rs.objects.PodSnapshot(ctx, k)
	if err != nil {
		return reconcile.Result{}, err
	}
	e, _ := rs.records.Ledger.Get(k)
	switch {
	case e.Deleted:
		return reconcile.Result{}, rs.deletions.forget(ctx, k)
	case s == nil && e.Published != "":
		again, err := rs.deletions.finish(ctx, e)
		if errors.Is(err, rollback.ErrRolledBack) {
			again, err = wait.Jitter(rolledBackPause, 0.2), nil
		}
		return reconcile.Result{RequeueAfter: again}, err
	case s == nil:
		if s, err = rs.publisher.publishIfDue(ctx, k, e); errors.Is(err, errEarly) {
			return reconcile.Result{RequeueAfter: control.ConflictPause}, nil
		} else if err != nil || s == nil {
			return reconcile.Result{}, err
		}
	case s.DeletionTimestamp != nil:
		return reconcile.Result{}, rs.deletions.serve(ctx, s)
	}
	if s.Annotations[podsnapshotv1.AnnotationOriginNode] != rs.nodeName {
		return reconcile.Result{}, nil
	}
	again, err := rs.reporter.report(ctx, s)
	if err == nil {
		err = rs.sleeps.Show(ctx, s)
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// rolledBackPause is how often a snapshot is looked at again that the cluster may have lost.
const rolledBackPause = 5 * time.Minute
