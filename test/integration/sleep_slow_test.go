package integration

import (
	"syscall"
	"testing"

	"diapause.dev/test/bed"
)

// TestSleepShimStoppedFalling stops the shim of a pod at every step of its falling asleep. Meanwhile another pod sleeps
// and wakes. Once the shim goes on, nothing of the pod is lost: it is awake, or is woken by the next packet, and can be
// put to sleep. What fails names the pod.
func TestSleepShimStoppedFalling(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	slow, meanwhile := n.slowBesideOther()
	before := n.serving(slow)
	for _, stage := range fallSteps {
		if err := n.duringSleep(stage, slow, meanwhile); err != nil {
			n.refusedWith([]string{"slow"}, "sleep of slow", err)
		}
		n.alive(slow, before)
		n.settled(at)
	}
	n.logsOn(slow)
	n.asleep(slow)
	n.alive(slow, before)
}

// TestSleepShimStoppedWaking stops the shim of a pod while it wakes. Meanwhile another pod sleeps and wakes. Whoever
// asked the pod is answered once the shim goes on.
func TestSleepShimStoppedWaking(t *testing.T) {
	n := start(t)
	slow, meanwhile := n.slowBesideOther()
	before := n.serving(slow)
	n.asleep(slow)
	if err := <-n.wakesInPart(slow, meanwhile); err != nil {
		t.Error(err)
	}
	n.logsOn(slow)
	n.alive(slow, before)
	n.asleep(slow)
	n.alive(slow, before)
}

// slowBesideOther runs two pods. Meanwhile stops the shim of one of them, slow, until the other has slept and woken.
func (n *node) slowBesideOther() (slow *bed.Pod, meanwhile func()) {
	n.Helper()
	slow, other := n.sleeper("slow", "--mib", "64"), n.sleeper("other", "--mib", "8")
	before := n.serving(other)
	return slow, n.whileStopped(slow, func() {
		n.sleep("", other)
		n.alive(other, before)
	})
}

// whileStopped returns a function that calls do while the shim of a pod is stopped.
func (n *node) whileStopped(p *bed.Pod, do func()) func() {
	n.Helper()
	shim := n.shimOf(p.ID)
	return func() {
		n.signal(shim, syscall.SIGSTOP)
		defer n.signal(shim, syscall.SIGCONT)
		do()
	}
}
