package e2e

import (
	"testing"

	"diapause.dev/test/bed"
)

// TestSameNode freezes a pod, deletes it at once, and brings it back by its name on the same node.
func TestSameNode(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.freezeAndWake(w.Node(0), w.Node(0))
}

// TestOtherNode brings a pod back on another node, as soon as it is frozen.
func TestOtherNode(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.freezeAndWake(w.Node(0), w.Node(1))
	w.freezeAndWake(w.Node(1), w.Node(0))
}

// freezeAndWake freezes a pod on a node and brings it back on a node.
func (w *world) freezeAndWake(first, second *bed.Node) {
	w.Helper()
	p := w.run(w.pod("web", on(first)))
	before := w.life(p)
	w.write("web", "/tmp/mark", "kept")
	s := w.checkpoint(p)
	w.remove("web")
	again := w.run(w.pod("web", on(second)))
	w.Logf("cold %v, checkpoint %v, restored %v", p.took, s.took, again.took)
	w.restored(again, s.name, before)
	w.reads("web", "/tmp/mark", "kept")
	w.remove("web")
	w.discard(s.name)
}

// TestBeforeReplication brings a pod back on another node while the object store does not answer:
// the pod waits for it, and is not started anew.
func TestBeforeReplication(t *testing.T) {
	w := begin(t)
	p := w.run(w.pod("web", on(w.Node(0))))
	before := w.life(p)
	w.gcs.Kill()
	s := w.checkpoint(p)
	w.remove("web")
	woken := w.start(w.pod("web", on(w.Node(1))))
	w.asked("web")
	w.must(w.gcs.Start(w.ctx))
	w.restored(w.finish(woken), s.name, before)
}

// TestNamed brings back an older snapshot, which the pod names, and the newest, which it need not.
func TestNamed(t *testing.T) {
	t.Parallel()
	w := begin(t)
	first := w.run(w.pod("web"))
	before := w.life(first)
	w.write("web", "/tmp/mark", "one")
	one := w.checkpoint(first)
	w.write("web", "/tmp/mark", "two")
	two := w.checkpoint(first)
	for _, x := range []struct{ name, mark string }{{one.name, "one"}, {"", "two"}, {two.name, "two"}} {
		w.remove("web")
		p := w.pod("web")
		if x.name != "" {
			from(x.name)(p)
		} else {
			x.name = two.name
		}
		again := w.run(p)
		w.restored(again, x.name, before)
		w.reads("web", "/tmp/mark", x.mark)
	}
}
