package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/bed"
)

// TestSandboxLost kills the sandboxes of pods that have snapshots, as the kernel does that is out of memory. A pod that
// started cold, and one that was restored, start anew, and an event says so. If the policy asks for it, the pod goes on
// from the newest snapshot of itself. A new pod of its group is restored, and so is one that a checkpoint has stopped.
func TestSandboxLost(t *testing.T) {
	t.Parallel()
	w := begin(t)
	n := w.Node(0)
	first := w.run(w.pod("web", on(n)))
	before := w.life(first)
	w.checkpoint(first)
	second := w.killed(n, first)
	anew := w.life(second)
	if anew.Boot == before.Boot {
		t.Errorf("the pod was restored: %+v", condition(second.Pod, podsnapshotv1.ConditionPodRestored))
	}
	w.eventually("an event says so", func() error {
		return w.event("web", func(e *corev1.Event) bool { return strings.Contains(e.Message, "has lost its sandbox") })
	})

	latest := w.checkpoint(second)
	w.kubectl("annotate", "podsnapshotpolicy", "policy",
		podsnapshotv1.AnnotationOnSandboxLoss+"="+podsnapshotv1.OnSandboxLossRestoreLatest)
	w.restored(w.killed(n, second), latest.name, anew)
	w.remove("web")
	next := w.run(w.pod("web", on(n)))
	w.restored(next, latest.name, anew)
	lost := w.killed(n, next) // it has no snapshot of its own
	w.eventually("the condition says so", func() error {
		c := condition(w.get("web"), podsnapshotv1.ConditionPodRestored)
		if c.Status != corev1.ConditionFalse || c.Reason != podsnapshotv1.ReasonSandboxLost {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
	if now := w.life(lost); now.Boot == anew.Boot {
		t.Error("the pod was restored again")
	}
}

// TestStoppedGoesOn has checkpoints stop a pod that the kubelet starts again: it goes on from each of them.
func TestStoppedGoesOn(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(fmt.Sprintf(stoppingPolicy, w.namespace))
	p := w.run(w.pod("web", on(w.Node(0)), func(p *corev1.Pod) { p.Labels["app"] = "stopping" }))
	before := w.life(p)
	for i := range 2 {
		name, err := w.outcome(w.ctx, w.trigger(fmt.Sprint("stop-", i), "web"), func() {})
		w.must(err)
		p = w.again(p)
		w.restored(p, name, before)
	}
}

// killed kills the sandbox of a pod on a node, and returns the pod when it is Ready again.
func (w *world) killed(n *bed.Node, p *ready) *ready {
	w.Helper()
	l, err := n.Runtime.ListPodSandbox(w.ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State:         &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(p.UID)},
	}})
	w.must(err)
	if len(l.Items) != 1 {
		w.Fatalf("pod %s has %d sandboxes", p.Name, len(l.Items))
	}
	const kill = "kill -KILL $(cat /run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/init.pid)"
	_, err = n.Exec(w.ctx, "sh", "-c", fmt.Sprintf(kill, l.Items[0].Id))
	w.must(err)
	return w.again(p)
}

// again returns a pod when another sandbox of it is Ready.
func (w *world) again(p *ready) *ready {
	w.Helper()
	var out *corev1.Pod
	w.eventually(p.Name+" is Ready again", func() error {
		out = w.get(p.Name)
		c := out.Status.ContainerStatuses
		if len(c) == 0 || c[0].ContainerID == p.Status.ContainerStatuses[0].ContainerID || !c[0].Ready ||
			condition(out, corev1.PodReady).Status != corev1.ConditionTrue {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
	if out.UID != p.UID {
		w.Fatalf("pod %s is another one", p.Name)
	}
	return &ready{Pod: out}
}
