package kube

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// kicker is a source of a controller. Other code uses it to requeue objects. Its methods may be called concurrently,
// kick also before Start.
type kicker struct {
	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	waiting []reconcile.Request // until there is a queue
}

// Start implements source.Source.
func (k *kicker) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = queue
	for _, r := range k.waiting {
		queue.Add(r)
	}
	k.waiting = nil
	return nil
}

// kick requeues an object. It does not block.
func (k *kicker) kick(name types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := reconcile.Request{NamespacedName: name}
	if k.queue == nil {
		k.waiting = append(k.waiting, r)
		return
	}
	k.queue.Add(r)
}

// bell wakes all that wait for news. Its methods may be called concurrently.
type bell struct {
	mu sync.Mutex
	ch chan struct{}
}

// listen returns a channel that is closed at the next ring.
func (b *bell) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
