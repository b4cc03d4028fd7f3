package sleep

import (
	"context"
	"fmt"
	"time"

	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
)

// Waker wakes pods, and knows which ones sleep. Its methods may be called concurrently.
type Waker struct {
	runtime Orders
	marks   Marks
}

// Orders are what a Waker needs of containerd. *cri.Client implements it.
type Orders interface {
	Find(ctx context.Context, target string) (*cri.Pod, error)
	OrderSleep(ctx context.Context, podID string, o sleep.Order) error
}

// Marks are the marks of the pods that sleep. *asleep.Marks implements it.
type Marks interface {
	All() []sleep.Mark
}

// NewWaker returns what wakes the pods of a node.
func NewWaker(r Orders, m Marks) *Waker { return &Waker{runtime: r, marks: m} }

// Woken is the result of a wake.
type Woken struct {
	Pod   *cri.Pod
	Since time.Time // when it fell asleep; zero: it did not sleep
	Took  time.Duration
}

// Wake wakes a pod, and returns when it runs. If it does not sleep, nothing is done.
func (k *Waker) Wake(ctx context.Context, target, cause string) (w Woken, err error) {
	if w.Pod, err = k.runtime.Find(ctx, target); err != nil {
		return w, err
	}
	if err := w.Pod.CheckRuntime(); err != nil {
		return w, err
	}
	w.Since, _ = k.Asleep(w.Pod.ID)
	began := time.Now()
	if err := k.runtime.OrderSleep(ctx, w.Pod.ID, sleep.Order{Verb: sleep.Wake, Cause: cause}); err != nil {
		return w, fmt.Errorf("wake pod %s: %w", w.Pod, err)
	}
	w.Took = time.Since(began)
	return w, nil
}

// Asleep reports whether the pod of a sandbox sleeps, and since when.
func (k *Waker) Asleep(sandbox string) (since time.Time, ok bool) {
	for _, m := range k.marks.All() {
		if m.Sandbox == sandbox {
			return m.Since, true
		}
	}
	return time.Time{}, false
}

// AsleepPod returns the mark of the pod with this UID. ok is false if it does not sleep.
func (k *Waker) AsleepPod(uid string) (m sleep.Mark, ok bool) {
	for _, m := range k.marks.All() {
		if m.UID == uid {
			return m, true
		}
	}
	return sleep.Mark{}, false
}

// All returns the pods that sleep, by the ids of their sandboxes.
func (k *Waker) All() map[string]sleep.Mark {
	all := make(map[string]sleep.Mark)
	for _, m := range k.marks.All() {
		all[m.Sandbox] = m
	}
	return all
}
