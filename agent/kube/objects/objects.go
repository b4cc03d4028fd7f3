// Package objects reads and writes the objects of the cluster that an agent or the controller works with.
package objects

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Objects is a client that reads watched objects from a cache. Its methods may be called concurrently.
type Objects struct {
	client.Client
	Live   client.Reader // reads from the API server
	Synced chan struct{} // closed by AwaitCaches when the caches are filled
	News   Bell          // of PodSnapshots
	Clock  *Clock        // tells the API server's time
	Events *Events
	IDs    *Identities

	mgr      manager.Manager
	kinds    []client.Object // that are read from the cache
	nodeName string
	log      *slog.Logger
	latest   *latest
}

// New returns the objects that a manager reads and writes, as the node with that name sees them. The clock must listen
// to the manager's requests. Kinds are kinds of objects that are read from the cache, besides those that define
// snapshots.
func New(ctx context.Context, mgr manager.Manager, clock *Clock, nodeName string, log *slog.Logger,
	kinds ...client.Object,
) (*Objects,
	error,
) {
	o := &Objects{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Synced: make(chan struct{}), Clock: clock,
		mgr: mgr, kinds: append(kinds, ofSnapshots()...), nodeName: nodeName, log: log,
		Events: &Events{nodeName: nodeName, recorder: mgr.GetEventRecorder("diapause")},
		IDs:    &Identities{live: mgr.GetAPIReader(), log: log}, latest: newLatest(),
	}
	return o, o.indexTriggers(ctx)
}

// ofSnapshots returns the kinds of objects that define snapshots.
func ofSnapshots() []client.Object {
	return []client.Object{
		&podsnapshotv1.PodSnapshot{}, &podsnapshotv1.PodSnapshotManualTrigger{}, &podsnapshotv1.PodSnapshotPolicy{},
		&podsnapshotv1.PodSnapshotStorageConfig{},
	}
}

// AwaitCaches closes Synced when the caches are filled. It must be called once.
func (o *Objects) AwaitCaches(ctx context.Context) {
	if !o.mgr.GetCache().WaitForCacheSync(ctx) || ctx.Err() != nil || o.fill(ctx) != nil {
		return
	}
	close(o.Synced)
	if _, err := o.IDs.Identity(ctx); err != nil && ctx.Err() == nil { // so that no checkpoint has to ask
		o.log.Warn("asked again with the next checkpoint", "error", err)
	}
}

// fill waits until every kind of object that is read from the cache is in the cache.
func (o *Objects) fill(ctx context.Context) error {
	for _, kind := range o.kinds {
		if _, err := o.mgr.GetCache().GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

const (
	// FreshTime is how long to wait for the API server before the cache is used instead.
	FreshTime = time.Second
	// LookAgain is how often something that is waited for is checked without news of it. After the API server was
	// unreachable, the cache may be silent for a while.
	LookAgain = time.Second
)

// Fresh lists objects from the API server or, if that does not answer, from the cache. The cache may be behind by
// more than a pod's start takes: always for a moment, and for half a minute after the API server was unreachable.
func (o *Objects) Fresh(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	soon, cancel := context.WithTimeout(ctx, FreshTime)
	defer cancel()
	if o.Live.List(soon, list, opts...) == nil {
		return nil
	}
	return o.List(ctx, list, opts...)
}

// AskTime is the longest that something is asked of an API server that does not answer, if a cache must not decide.
const AskTime = 10 * time.Second

// Patiently calls read, which asks the API server, until it succeeds or ctx is done. Each attempt has more time than
// the one before: an API server that is slow may answer, and a connection that is dead is given up.
func Patiently(ctx context.Context, read func(context.Context) error) error {
	for patience := FreshTime; ; patience *= 2 {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return read(ctx)
		}()
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return err
		}
		select {
		case <-time.After(FreshTime / 4):
		case <-ctx.Done():
			return err
		}
	}
}
