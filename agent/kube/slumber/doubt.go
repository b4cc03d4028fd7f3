package slumber

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// wordTime is how long a pod that no longer sleeps is not said to have woken if no shim has said so. It may have ended
// in its sleep, which the kubelet shows later.
const wordTime = 10 * time.Second

// doubts are the pods of which it is open whether they have woken or ended in their sleep. Its methods may be called
// concurrently.
type doubts struct {
	wakes *wakes

	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

func newDoubts(w *wakes) *doubts {
	return &doubts{wakes: w, since: make(map[types.NamespacedName]time.Time)}
}

// left returns how long it is to be left open whether a pod that slept has woken, or 0.
func (d *doubts) left(pod *corev1.Pod, asleep bool) time.Duration {
	_, known := d.wakes.of(string(pod.UID))
	name := client.ObjectKeyFromObject(pod)
	if asleep || known || ended(pod) || shown(pod).Status != corev1.ConditionTrue {
		d.end(name)
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	since, ok := d.since[name]
	if !ok {
		since = time.Now()
		d.since[name] = since
	}
	return max(wordTime-time.Since(since), 0)
}

// end ends the doubt about a pod.
func (d *doubts) end(pod types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.since, pod)
}
