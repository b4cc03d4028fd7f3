// Package control has what the controllers of an agent have in common: how their objects are queued, how many are
// reconciled at a time, and how failures are retried.
package control

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What failed is retried after retryFirst. The pause then doubles each time, up to retryMost.
const (
	retryFirst = 20 * time.Millisecond
	retryMost  = 10 * time.Second
)

// Workers is how many objects of a kind are reconciled at a time.
const Workers = 8

// Controller begins a controller whose objects can also be requeued through q.
func Controller(mgr manager.Manager, q *Queue) *builder.Builder {
	return builder.ControllerManagedBy(mgr).WatchesRawSource(q)
}

// Complete completes a controller. Name is that of one of its objects.
func Complete(b *builder.Builder, name string, serve reconcile.Func) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryMost)
	err := b.Named(name).WithOptions(controller.Options{
		MaxConcurrentReconciles: Workers,
		RateLimiter:             limiter,
	}).Complete(serve)
	if err != nil {
		return fmt.Errorf("controller of %ss: %w", name, err)
	}
	return nil
}

// ConflictPause is how long to wait after a conflict, because somebody else has just changed the object. The cache
// has the change by then.
const ConflictPause = 30 * time.Millisecond

// RetryConflict returns what a reconciler returns that has ended with err. A conflict is retried soon.
func RetryConflict(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: ConflictPause}, nil
	}
	return reconcile.Result{}, err
}
