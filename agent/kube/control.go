package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// What failed is retried after retryFirst. The pause then doubles each time, up to retryMost.
const (
	retryFirst = 20 * time.Millisecond
	retryMost  = 10 * time.Second
)

// workers is how many objects of a kind are reconciled at a time.
const workers = 8

// watched returns the kinds of objects that are read from the cache.
func watched() []client.Object {
	return []client.Object{
		&corev1.Pod{}, &podsnapshotv1.PodSnapshot{}, &podsnapshotv1.PodSnapshotManualTrigger{},
		&podsnapshotv1.PodSnapshotPolicy{}, &podsnapshotv1.PodSnapshotStorageConfig{},
	}
}

// control sets up the controllers.
func (c *Cluster) control() error {
	err := c.mgr.GetFieldIndexer().IndexField(context.Background(), &podsnapshotv1.PodSnapshotManualTrigger{}, targetIndex,
		targetOf)
	if err != nil {
		return fmt.Errorf("index triggers: %w", err)
	}
	trigger, pod, snapshot := &podsnapshotv1.PodSnapshotManualTrigger{}, &corev1.Pod{}, &podsnapshotv1.PodSnapshot{}
	each := &handler.EnqueueRequestForObject{}
	for _, x := range []struct {
		b     *builder.Builder
		name  string
		serve reconcile.Func
	}{
		{c.controller(&c.triggers).Watches(trigger, each).
			Watches(trigger, handler.EnqueueRequestsFromMapFunc(c.triggersOf), builder.WithPredicates(deletions)).
			Watches(pod, handler.EnqueueRequestsFromMapFunc(c.triggersOf)), "trigger", c.serveTrigger},
		{c.controller(&c.pods).Watches(pod, each), "pod", c.servePod},
		{c.controller(&c.snapshots).Watches(snapshot, c.snapshotEvents()), "snapshot", c.serveSnapshot},
	} {
		if err := c.complete(x.b, x.name, x.serve); err != nil {
			return err
		}
	}
	return c.controlDuties()
}

// controller begins a controller that can also be kicked.
func (c *Cluster) controller(k *kicker) *builder.Builder {
	return builder.ControllerManagedBy(c.mgr).WatchesRawSource(k)
}

func (c *Cluster) complete(b *builder.Builder, name string, serve reconcile.Func) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryMost)
	err := b.Named(name).WithOptions(controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             limiter,
	}).Complete(serve)
	if err != nil {
		return fmt.Errorf("controller of %ss: %w", name, err)
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
func (c *Cluster) snapshotEvents() handler.Funcs {
	seen := func(s client.Object, q queue) {
		c.news.ring()
		if s.GetAnnotations()[podsnapshotv1.AnnotationOriginNode] == c.cfg.NodeName || s.GetDeletionTimestamp() != nil {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if s, ok := e.Object.(*podsnapshotv1.PodSnapshot); ok {
				c.seen(s)
			}
			seen(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { seen(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			if s, ok := e.Object.(*podsnapshotv1.PodSnapshot); ok {
				c.latest.drop(keyOf(s))
			}
			seen(e.Object, q)
		},
	}
}
