package control

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is a controller's queue of objects to reconcile. Its methods may be called concurrently, Kick also before
// Start.
type Queue struct {
	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	waiting []reconcile.Request // until there is a queue
}

// Start implements source.Source.
func (q *Queue) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = queue
	for _, r := range q.waiting {
		queue.Add(r)
	}
	q.waiting = nil
	return nil
}

// Kick requeues an object. It does not block.
func (q *Queue) Kick(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := reconcile.Request{NamespacedName: name}
	if q.queue == nil {
		q.waiting = append(q.waiting, r)
		return
	}
	q.queue.Add(r)
}
