package e2e

import "testing"

// TestSameNode freezes a pod, deletes it at once, and brings it back by its name on the same node.
func TestSameNode(t *testing.T) {
	w := begin(t)
	n := w.Node(0)
	p := w.run(w.pod("web", on(n)))
	before := w.life(p)
	w.write("web", "/tmp/mark", "kept")
	s := w.checkpoint(p)
	w.remove("web")
	again := w.run(w.pod("web", on(n)))
	t.Logf("cold %v, checkpoint %v, restored %v", p.took, s.took, again.took)
	w.restored(again, s.name, before)
	w.reads("web", "/tmp/mark", "kept")
}
