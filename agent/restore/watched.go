package restore

import (
	"sync"

	"diapause.dev/api/snapshot"
)

// watchedPods are the pods whose restores requests of this node wait for. Its methods may be called concurrently. The
// zero value has none.
type watchedPods struct {
	mu  sync.Mutex
	all map[string]*watchedPod // by namespace/name
}

// watchedPod is a pod whose restore a request of this node waits for.
type watchedPod struct {
	pods    *watchedPods
	pod     string
	uid     string   // of the snapshot that it is made from
	restore *restore // guarded by pods.mu
}

// watch follows the restore of a pod that is about to be made from the snapshot with this UID, until forget is called.
func (p *watchedPods) watch(pod, uid string) *watchedPod {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &watchedPod{pods: p, pod: pod, uid: uid}
	if p.all == nil {
		p.all = make(map[string]*watchedPod)
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

func (w *watchedPod) forget() {
	w.pods.mu.Lock()
	defer w.pods.mu.Unlock()
	if w.pods.all[w.pod] == w {
		delete(w.pods.all, w.pod)
	}
}

// get returns the pod's restore, or nil if the shim has not asked for one.
func (w *watchedPod) get() *restore {
	w.pods.mu.Lock()
	defer w.pods.mu.Unlock()
	return w.restore
}
