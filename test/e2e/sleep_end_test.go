package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// keep is a finalizer with which a pod shows how it has ended.
const keep = "diapause.dev/keep-for-test"

func kept(p *corev1.Pod) { controllerutil.AddFinalizer(p, keep) }

// TestSleepDeleted deletes a pod that sleeps: it ends at once, with the status of SIGTERM, and is not woken. As its
// policy has pods saved when they are deleted, its successor goes on from its snapshot.
func TestSleepDeleted(t *testing.T) {
	t.Parallel()
	w := terminating(t)
	p := w.run(w.pod("web", kept, withShell, grace(60)))
	before := w.life(p)
	w.sleeps("web", "one")
	w.endsWith("web", 143)
	if err := w.condition("web", corev1.ConditionTrue, ""); err != nil {
		t.Errorf("the pod was woken: %v", err)
	}
	w.letGo("web")
	again := w.run(w.pod("web", withShell))
	w.restored(again, w.snapshots()[0].Name, before)
}

const wakingPolicy = `
apiVersion: diapause.dev/v1alpha1
kind: SleepPolicy
metadata: {name: idle, namespace: %s}
spec:
  selector: {matchLabels: {app: workload}}
  idleAfter: 2s
  idle: {cpuMillicores: 500, packetsPerMinute: 600}
  endWithoutWaking: false
`

// TestEndWithoutWakingFalse deletes a sleeping pod whose policy says that its shutdown must run: it is woken, and its
// workload ends by itself, with the status that it has for SIGTERM.
func TestEndWithoutWakingFalse(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(fmt.Sprintf(wakingPolicy, w.namespace))
	p := w.run(w.pod("web", kept, grace(60)))
	w.life(p)
	w.must(until(w.ctx, func() error { return w.condition("web", corev1.ConditionTrue, "") }))
	w.endsWith("web", 42)
	w.letGo("web")
}

// endsWith deletes a pod that has the finalizer, and waits until its first container has ended with a status, long
// before the end of its grace period.
func (w *world) endsWith(pod string, status int32) {
	w.Helper()
	began := time.Now()
	w.must(w.client.Delete(w.ctx, w.get(pod)))
	var end *corev1.ContainerStateTerminated
	w.eventually(pod+" ends", func() error {
		for _, c := range w.get(pod).Status.ContainerStatuses {
			if c.Name == "app" && c.State.Terminated != nil {
				end = c.State.Terminated
				return nil
			}
		}
		return errNotYet
	})
	w.Logf("pod %s has ended with %d within %v", pod, end.ExitCode, time.Since(began))
	if end.ExitCode != status {
		w.Errorf("pod %s has ended with %d, want %d: %+v", pod, end.ExitCode, status, end)
	}
}

// letGo removes the finalizer of a pod, and returns when the pod is gone.
func (w *world) letGo(pod string) {
	w.Helper()
	p := w.get(pod)
	old := p.DeepCopy()
	controllerutil.RemoveFinalizer(p, keep)
	w.must(w.client.Patch(w.ctx, p, client.MergeFrom(old)))
	w.awaitGone(p)
}

// TestSleepDrained drains a node with two pods that are saved when they are deleted. One sleeps, and is ready to wake.
// Both successors go on where the pods were. The one that slept was not woken.
func TestSleepDrained(t *testing.T) {
	w := terminating(t)
	n := w.Node(0)
	w.Cleanup(func() {
		if _, err := w.Kubectl(context.Background(), "uncordon", n.Name); err != nil {
			t.Error(err)
		}
	})
	first, second := w.start(w.pod("asleep", on(n), grace(60))), w.start(w.pod("awake", on(n), grace(60)))
	asleep, awake := w.life(w.finish(first)), w.life(w.finish(second))
	w.sleeps("asleep", "one")
	w.must(until(w.ctx, func() error { return w.condition("asleep", corev1.ConditionTrue, podsnapshotv1.ReadyToWake) }))
	w.kubectl("drain", n.Name, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--pod-selector=app=workload",
		"--timeout=120s")
	if events := w.kubectl("get", "events"); strings.Contains(events, podsnapshotv1.ReasonWoke) {
		t.Errorf("a pod was woken:\n%s", events)
	}
	first, second = w.start(w.pod("asleep")), w.start(w.pod("awake"))
	w.whole(w.elsewhere(n, w.finish(first)), asleep)
	w.whole(w.elsewhere(n, w.finish(second)), awake)
}

// elsewhere fails unless a pod is on another node than the given.
func (w *world) elsewhere(n *bed.Node, p *ready) *ready {
	w.Helper()
	if p.Spec.NodeName == n.Name {
		w.Errorf("pod %s is on %s", p.Name, n.Name)
	}
	return p
}

// TestSleepNodeLost crashes a node whose pods sleep. Their successors are restored on the nodes that are left.
func TestSleepNodeLost(t *testing.T) {
	w := terminating(t)
	n := w.anotherNode()
	first, second := w.start(w.pod("one", on(n))), w.start(w.pod("two", on(n)))
	one, two := w.life(w.finish(first)), w.life(w.finish(second))
	for _, pod := range []string{"one", "two"} {
		w.sleeps(pod, "first")
	}
	for _, s := range w.snapshots() {
		w.replicated(s.Name)
		w.must(until(w.ctx, func() error { // what its node has not said, nobody knows once it is lost
			if s := w.snapshot(s.Name); rules.Asleep(s) != metav1.ConditionTrue {
				return fmt.Errorf("PodSnapshot %s: %+v", s.Name, s.Status)
			}
			return nil
		}))
	}
	w.must(w.loseNode(n))
	for _, pod := range []string{"one", "two"} {
		w.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
	}
	first, second = w.start(w.pod("one")), w.start(w.pod("two"))
	w.whole(w.elsewhere(n, w.finish(first)), one)
	w.whole(w.elsewhere(n, w.finish(second)), two)
}

// anotherNode adds a node to the cluster, with Diapause installed on it. It goes with the test.
func (w *world) anotherNode() *bed.Node {
	w.Helper()
	before := len(w.Nodes())
	w.Cleanup(func() {
		if all := w.Nodes(); len(all) > before {
			if err := w.loseNode(all[before]); err != nil {
				w.Error(err)
			}
		}
	})
	var restarted func() error
	n, err := w.AddNode(w.ctx, func(n *bed.Node) error {
		restarted = n.Containerd.Supervise(w.ctx)
		return errors.Join(furnishSystemctl(w.ctx, n), w.importAgentTo(w.ctx, n.Containerd.Import, images.Agent, nil))
	})
	w.must(err)
	w.must(w.rollout(w.ctx))
	w.must(restarted())
	return n
}

// loseNode crashes the node that was added, and has the API server forget it and its agent.
func (w *world) loseNode(n *bed.Node) error {
	ctx := context.Background()
	err := w.LoseNode()
	_, nodeErr := w.Kubectl(ctx, "delete", "node", n.Name)
	_, podErr := w.Kubectl(ctx, "--namespace="+system, "delete", "pod", "--force", "--grace-period=0",
		"--field-selector=spec.nodeName="+n.Name)
	return errors.Join(err, nodeErr, podErr)
}
