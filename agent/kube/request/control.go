package request

import (
	"context"

	corev1 "k8s.io/api/core/v1"
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
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Control sets up the controllers of triggers, pods and PodSnapshots.
func (rs *Requests) Control(mgr manager.Manager) error {
	trigger, pod, snapshot := &podsnapshotv1.PodSnapshotManualTrigger{}, &corev1.Pod{}, &podsnapshotv1.PodSnapshot{}
	each := &handler.EnqueueRequestForObject{}
	for _, x := range []struct {
		b     *builder.Builder
		name  string
		serve reconcile.Func
	}{
		{control.Controller(mgr, &rs.triggers).Watches(trigger, each).
			Watches(trigger, handler.EnqueueRequestsFromMapFunc(rs.triggersOf), builder.WithPredicates(deletions)).
			Watches(pod, handler.EnqueueRequestsFromMapFunc(rs.triggersOf)), "trigger", rs.serveTrigger},
		{control.Controller(mgr, &rs.pods).Watches(pod, each), "pod", rs.servePod},
		{control.Controller(mgr, &rs.snapshots).Watches(snapshot, rs.snapshotEvents()), "snapshot", rs.serveSnapshot},
	} {
		if err := control.Complete(x.b, x.name, x.serve); err != nil {
			return err
		}
	}
	return nil
}

// deletions passes only deletions.
var deletions = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// queue is a controller's queue.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// snapshotEvents wakes those that wait for news of PodSnapshots, and requeues the PodSnapshots that concern this
// node.
func (rs *Requests) snapshotEvents() handler.Funcs {
	seen := func(s client.Object, q queue) {
		rs.Objects.News.Ring()
		own, deleted := s.GetAnnotations()[podsnapshotv1.AnnotationOriginNode] == rs.NodeName, s.GetDeletionTimestamp() != nil
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
				rs.seen(s)
			}
			seen(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { seen(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			if s, ok := e.Object.(*podsnapshotv1.PodSnapshot); ok {
				rs.Objects.Unsure(objects.KeyOf(s))
			}
			seen(e.Object, q)
		},
	}
}
