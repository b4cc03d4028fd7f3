package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/images"
)

// grace gives a pod a grace period.
func grace(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

// terminating begins a world whose policy has pods saved when they are deleted.
func terminating(t *testing.T) *world {
	t.Helper()
	w := begin(t)
	w.kubectl("annotate", "podsnapshotpolicy", "policy",
		podsnapshotv1.AnnotationOnTermination+"="+podsnapshotv1.OnTerminationCheckpoint)
	return w
}

// TestDrainSaves drains a node: the pod is saved before it ends, and its successor goes on with its memory on the other
// node. The second container does not heed SIGTERM: it would need the whole grace period.
func TestDrainSaves(t *testing.T) {
	w := terminating(t)
	n := w.Node(0)
	p := w.run(w.pod("web", on(n), withShell, grace(60)))
	before := w.life(p)
	w.Cleanup(func() {
		if _, err := w.Kubectl(context.Background(), "uncordon", n.Name); err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	w.kubectl("drain", n.Name, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--pod-selector=app=workload",
		"--timeout=120s")
	t.Logf("the node was drained within %v", time.Since(began))
	all := w.snapshots()
	if len(all) != 1 {
		t.Fatalf("%d PodSnapshots, want that of the pod's end", len(all))
	}
	again := w.run(w.pod("web", withShell, grace(1)))
	if again.Spec.NodeName == n.Name {
		t.Errorf("the pod is on %s, which was drained", n.Name)
	}
	w.restored(again, all[0].Name, before)
	w.remove("web") // within its grace period it cannot be saved
	w.unsaved("web", "grace period")
}

// TestDeploymentDrained drains a node with the only pod of a Deployment. Its successor starts while it is being saved,
// waits for that, and goes on where it was.
func TestDeploymentDrained(t *testing.T) {
	w := terminating(t)
	w.Cleanup(func() {
		for _, n := range w.Nodes() {
			if _, err := w.Kubectl(context.Background(), "uncordon", n.Name); err != nil {
				t.Error(err)
			}
		}
	})
	template := w.pod("web", grace(60), command("/bin/workload", "serve", "--mib=256"))
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels}, Spec: template.Spec},
		},
	}
	w.must(w.client.Create(w.ctx, d))
	first := w.replicas(1, template.Labels)[0]
	before := w.life(first)
	w.kubectl("drain", first.Spec.NodeName, "--ignore-daemonsets", "--force", "--delete-emptydir-data",
		"--pod-selector=app=workload", "--timeout=120s")
	next := w.replicas(1, template.Labels)[0]
	all := w.snapshots()
	if next.Spec.NodeName == first.Spec.NodeName || len(all) != 1 {
		t.Fatalf("the successor is on %s, as the pod was on %s; %d PodSnapshots", next.Spec.NodeName, first.Spec.NodeName,
			len(all))
	}
	w.restored(next, all[0].Name, before)
	w.must(w.client.Delete(w.ctx, d))
}

// TestRestartIsNoTermination: a single container that fails its liveness probe is restarted, and nothing is saved.
func TestRestartIsNoTermination(t *testing.T) {
	t.Parallel()
	w := terminating(t)
	fails := func(p *corev1.Pod) {
		p.Spec.Containers[1].LivenessProbe = &corev1.Probe{
			PeriodSeconds: 1, FailureThreshold: 1, TerminationGracePeriodSeconds: new(int64(1)),
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "exit 1"}}},
		}
	}
	w.run(w.pod("web", withShell, fails, grace(30)))
	w.eventually("a restart", func() error {
		for _, c := range w.get("web").Status.ContainerStatuses {
			if c.RestartCount > 0 {
				return nil
			}
		}
		return errNotYet
	})
	if all := w.snapshots(); len(all) > 0 {
		t.Errorf("%d PodSnapshots, want none", len(all))
	}
}

// TestEndsWithoutAgent deletes a pod while its node's agent is stopped by SIGSTOP: the pod gets its SIGTERM and ends
// within its grace period.
func TestEndsWithoutAgent(t *testing.T) {
	w := terminating(t)
	n := w.Node(0)
	heeds := command("/bin/sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done")
	p := w.pod("web", on(n), grace(120), heeds)
	p.Spec.Containers[0].Image = images.Busybox
	w.run(p)
	w.signalAgent(n, "-STOP")
	began := time.Now()
	w.must(w.client.Delete(w.ctx, p))
	err := w.goneWithin(p, 60*time.Second)
	w.signalAgent(n, "-CONT")
	w.must(err)
	t.Logf("the pod was gone within %v", time.Since(began))
	if all := w.snapshots(); len(all) > 0 {
		t.Errorf("%d PodSnapshots, want none", len(all))
	}
}

// goneWithin returns an error unless a pod that was deleted is gone in time.
func (w *world) goneWithin(p *corev1.Pod, d time.Duration) error {
	ctx, cancel := context.WithTimeout(w.ctx, d)
	defer cancel()
	return until(ctx, func() error {
		err := w.client.Get(ctx, client.ObjectKeyFromObject(p), new(corev1.Pod))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("pod %s is still there: %w", p.Name, err)
	})
}

// unsaved waits for the event that says why a pod ended without having been saved.
func (w *world) unsaved(pod, why string) {
	w.Helper()
	w.eventually("an event says that the pod was not saved", func() error {
		return w.event(pod, func(e *corev1.Event) bool {
			return e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, "without having been saved") &&
				strings.Contains(e.Message, why)
		})
	})
}
