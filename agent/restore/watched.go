package restore

import (
	"context"
	"errors"
	"sync"
	"time"

	"diapause.dev/api/snapshot"
)

// watchedPods are the pods whose restores requests of this node wait for. Its methods may be called concurrently. The
// zero value has none.
type watchedPods struct {
	mu  sync.Mutex
	all map[string]*WatchedPod // by namespace/name
}

// WatchedPod is a pod whose restore a request of this node waits for.
type WatchedPod struct {
	pods    *watchedPods
	pod     string
	uid     string   // of the snapshot that it is made from
	restore *restore // guarded by pods.mu
}

// Watch follows the restore of a pod that is about to be made from the snapshot with this UID, until Forget is called.
func (rs *Restores) Watch(pod, uid string) *WatchedPod { return rs.watched.watch(pod, uid) }

// watch is Restores.Watch.
func (p *watchedPods) watch(pod, uid string) *WatchedPod {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &WatchedPod{pods: p, pod: pod, uid: uid}
	if p.all == nil {
		p.all = make(map[string]*WatchedPod)
	}
	p.all[pod] = w
	return w
}

// expected returns the UID that the snapshot must have. It is the choice's UID, or else that of the snapshot from which
// a request of this node makes the pod. Empty: any.
func (p *watchedPods) expected(c Choice, pod snapshot.PodRef) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.all[pod.String()]; w != nil && c.UID == "" {
		return w.uid
	}
	return c.UID
}

// begun notes a restore, if its pod is watched.
func (p *watchedPods) begun(r *restore) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.all[r.Pod.String()]; w != nil {
		w.restore = r
	}
}

// Forget ends the watch.
func (w *WatchedPod) Forget() {
	w.pods.mu.Lock()
	defer w.pods.mu.Unlock()
	if w.pods.all[w.pod] == w {
		delete(w.pods.all, w.pod)
	}
}

// get returns the pod's restore, or nil if the shim has not asked for one.
func (w *WatchedPod) get() *restore {
	w.pods.mu.Lock()
	defer w.pods.mu.Unlock()
	return w.restore
}

// Cause returns why the pod's restore failed, if the agent itself found that out, or nil.
func (w *WatchedPod) Cause() error { return w.get().cause() }

// loadPoll is how often loading is reported.
const loadPoll = 200 * time.Millisecond

// AwaitLoaded waits until the pod's sandbox has all its memory. If ctx ends first, AwaitLoaded returns nil and the
// sandbox goes on loading.
func (w *WatchedPod) AwaitLoaded(ctx context.Context, progress func(done, total int64)) error {
	r := w.get()
	if r == nil {
		return errNotAsked
	}
	tick := time.NewTicker(loadPoll)
	defer tick.Stop()
	for {
		select {
		case <-r.ended:
			err := r.failure()
			if err == nil {
				progress(r.image.Total(), r.image.Total())
			}
			return err
		case <-ctx.Done():
			return nil
		case <-tick.C:
			progress(r.image.Progress())
		}
	}
}

// errNotAsked says that a pod has started and its shim has not asked the agent whether to restore it.
var errNotAsked = errors.New("the pod was started cold and not restored: does its runtime handler run " +
	"containerd-shim-diapause-v1?")
