package e2e

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/bed"
)

const latePolicy = `
apiVersion: diapause.dev/v1alpha1
kind: SleepPolicy
metadata: {name: late, namespace: %s}
spec:
  selector: {matchLabels: {app: workload}}
  idleAfter: 1h
  idle: {cpuMillicores: 500}
`

// What one of these pods has, the agent's reserve, and what a node has besides one of them, in bytes.
const (
	fitPod     = 256 << 20
	fitReserve = 512 << 20
	fitMore    = 160 << 20
)

// TestWakeMakesRoom has two pods wake on a node with memory for one of them. While the first is idle, it is put to
// sleep for the second, long before its policy says so. While it is used, the second waits, and says so.
func TestWakeMakesRoom(t *testing.T) {
	w := begin(t)
	w.must(w.left()) // pods that go would leave memory to these
	n := w.Node(0)
	w.apply(fmt.Sprintf(latePolicy, w.namespace))
	large := command("/bin/workload", "serve", fmt.Sprint("--mib=", fitPod>>20))
	one, two := w.run(w.pod("one", on(n), large)), w.run(w.pod("two", on(n), large))
	firstLife, secondLife := w.life(one), w.life(two)
	w.sleeps("one", "first")
	w.sleeps("two", "first")
	now, err := n.BestEffortMemory()
	w.must(err)
	w.must(n.LimitBestEffort(now.Held() + fitPod + fitReserve + fitMore))
	defer func() { w.must(n.LimitBestEffort(math.MaxInt64)) }()

	w.whole(one, firstLife)
	w.wakes("one", "packet")
	w.whole(two, secondLife)
	w.wakes("two", "packet")
	w.must(until(w.ctx, func() error { return w.condition("one", corev1.ConditionTrue, "") }))
	w.awaitEvent("one", podsnapshotv1.ReasonMadeRoom)

	rest := w.keepBusy(two)
	answered := make(chan error, 1)
	go func() {
		_, err := bed.Fetch(w.ctx, "http://"+one.Status.PodIP+":8080/state")
		answered <- err
	}()
	w.must(until(w.ctx, func() error { return w.condition("one", corev1.ConditionTrue, "MiB of memory") }))
	w.awaitEvent("one", podsnapshotv1.ReasonWaitsForMemory)
	select {
	case err := <-answered:
		t.Errorf("it answers: %v", err)
	default:
	}
	rest()
	w.must(<-answered)
	w.wakes("one", "packet")
	w.whole(one, firstLife)
	w.must(until(w.ctx, func() error { return w.condition("two", corev1.ConditionTrue, "") }))
}

// keepBusy asks a pod ten times a second until the returned function is called.
func (w *world) keepBusy(p *ready) (rest func()) {
	ctx, stop := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if _, err := bed.Fetch(ctx, "http://"+p.Status.PodIP+":8080/state"); err != nil && ctx.Err() == nil {
				w.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return func() {
		stop()
		<-done
	}
}

// awaitEvent waits until a pod has an event of a reason.
func (w *world) awaitEvent(pod, reason string) {
	w.Helper()
	w.eventually("event "+reason, func() error {
		return w.event(pod, func(e *corev1.Event) bool { return e.Reason == reason })
	})
}
