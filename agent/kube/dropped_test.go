package kube_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestHostileAnnotationsEvent: an event on the pod names the annotations that gVisor does not get.
func TestHostileAnnotationsEvent(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	r := w.start(a)
	pod := w.pod(a, "bold", func(p *corev1.Pod) {
		p.Annotations = map[string]string{
			"dev.gvisor.spec.rootfs.source": "/", "dev.gvisor.spec.mount.none.type": "tmpfs",
			"dev.gvisor.internal.checkpoint.enable": "true", "example.com/a": "b",
		}
	})
	if _, err := choose(t, r, pod, enough); err != nil {
		t.Error(err)
	}
	w.event(pod, corev1.EventTypeWarning,
		"kept from gVisor: dev.gvisor.spec.mount.none.type, dev.gvisor.spec.rootfs.source")
}
