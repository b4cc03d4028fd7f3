package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestHostNetwork has a pod with its node's network restored.
func TestHostNetwork(t *testing.T) {
	w := begin(t)
	n := w.Nodes()[0]
	host := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	p := w.run(w.pod("web", on(n), host))
	before := w.life(p)
	s := w.checkpoint(p)
	w.remove("web")
	w.restored(w.run(w.pod("web", on(n), host)), s.name, before)
}
