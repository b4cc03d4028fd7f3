package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/images"
)

// TestRootfsOnly freezes a pod's files alone, under a policy of that scope, and gives them to pods
// with another command and another number of containers, on either node. Their init containers run. Such a policy does
// not keep a pod from sleeping, with its memory.
func TestRootfsOnly(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(rootfsPolicy(w.namespace))
	p := w.run(w.pod("web", on(w.Node(0))))
	before := w.life(p)
	w.write("web", "/mark", "kept")
	w.sleeps("web", "a")
	w.whole(p, before)
	w.wakes("web", "packet")
	s := w.checkpoint(p)
	if got := w.snapshot(s.name).Annotations[podsnapshotv1.AnnotationScope]; got != string(podsnapshotv1.ScopeRootfsOnly) {
		t.Errorf("the PodSnapshot's scope is %q", got)
	}
	more := func(p *corev1.Pod) {
		busybox := func(name, script string) corev1.Container {
			return corev1.Container{Name: name, Image: images.Busybox, Command: []string{"/bin/sh", "-c", script}}
		}
		p.Spec.InitContainers = []corev1.Container{busybox("init", "true")}
		p.Spec.Containers = append(p.Spec.Containers, busybox("side", "sleep 100000"))
	}
	for i, change := range []func(*corev1.Pod){more, command("/bin/workload", "serve", "--mib=1")} {
		w.remove("web")
		again := w.run(w.pod("web", on(w.Node(1-i)), change))
		c := condition(again.Pod, podsnapshotv1.ConditionPodRestored)
		if c.Status != corev1.ConditionTrue || !strings.Contains(c.Message, s.name) {
			t.Errorf("Ready with PodRestored %q %q %q, want True from %s", c.Status, c.Reason, c.Message, s.name)
		}
		w.reads("web", "/mark", "kept")
		if now := w.life(again); now.Boot == before.Boot {
			t.Error("the process did not start anew")
		}
		w.Logf("cold %v, checkpoint %v, restored %v", p.took, s.took, again.took)
	}
}

// rootfsPolicy is the policy of a namespace where files alone are frozen.
func rootfsPolicy(namespace string) string {
	return strings.Replace(fmt.Sprintf(policy, namespace), "storageConfigName:",
		"snapshotScope: rootfs-only\n  storageConfigName:", 1)
}
