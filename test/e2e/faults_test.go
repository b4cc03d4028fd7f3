package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/test/bed"
)

// instants are when something is killed after a checkpoint or a restore has begun, so that it is hit
// in each of its stages.
var instants = []time.Duration{0, 30, 80, 150, 250, 400}

// TestAgentKilledInCheckpoint kills the agent in the course of checkpoints: every trigger ends, the
// pod runs on, and what is Ready can be restored.
func TestAgentKilledInCheckpoint(t *testing.T) {
	w := begin(t)
	n := w.Node(0)
	p := w.run(w.pod("web", on(n)))
	before := w.life(p)
	for _, after := range instants {
		trigger := w.trigger(fmt.Sprintf("after-%d", after), "web")
		time.Sleep(after * time.Millisecond)
		w.killAgent(n)
		name, err := w.outcome(w.ctx, trigger, func() {})
		t.Logf("killed after %d ms: %q, %v", after, name, err)
		if err != nil && !errors.Is(err, errFailed) {
			t.Fatal(err)
		}
		w.moves(p)
		w.whole(p, before)
		if err == nil {
			w.remove("web")
			p = w.run(w.pod("web", on(n)))
			w.restored(p, name, before)
		}
	}
	w.onePerTrigger()
}

// TestAgentKilledInRestore kills the agent in the course of restores: every byte arrives from the
// next one.
func TestAgentKilledInRestore(t *testing.T) {
	w := begin(t)
	n := w.Node(0)
	large := command("/bin/workload", "serve", "--mib=128")
	p := w.run(w.pod("web", on(n), large))
	before := w.life(p)
	s := w.checkpoint(p)
	for _, after := range []time.Duration{100, 300, 500, 700, 900} {
		w.remove("web")
		began := time.Now()
		done := w.start(w.pod("web", on(n), large))
		time.Sleep(after*time.Millisecond - time.Since(began))
		w.killAgent(n)
		w.restored(w.finish(done), s.name, before)
	}
}

// TestDaemonsRestarted kills containerd and the kubelet in the course of checkpoints and restores.
func TestDaemonsRestarted(t *testing.T) {
	w := begin(t)
	n := w.Node(0)
	for _, x := range []struct {
		name   string
		daemon *bed.Daemon
	}{{"containerd", n.Containerd.Daemon}, {"kubelet", n.Kubelet}} {
		p := w.run(w.pod(x.name, on(n)))
		before := w.life(p)
		for _, after := range []time.Duration{20, 120, 300} {
			trigger := w.trigger(fmt.Sprintf("%s-%d", x.name, after), x.name)
			time.Sleep(after * time.Millisecond)
			x.daemon.Kill()
			w.must(x.daemon.Start(w.ctx))
			name, err := w.outcome(w.ctx, trigger, func() {})
			t.Logf("%s killed %d ms after the trigger: %q, %v", x.name, after, name, err)
			if err != nil && !errors.Is(err, errFailed) {
				t.Fatal(err)
			}
			w.moves(p)
		}
		if x.daemon == n.Containerd.Daemon { // a kubelet that has just started knows no pods yet
			w.answers(w.forward(x.name, 8080))
		}
		s := w.checkpoint(p)
		w.remove(x.name)
		done := w.start(w.pod(x.name, on(n)))
		w.asked(x.name)
		time.Sleep(300 * time.Millisecond)
		x.daemon.Kill()
		w.must(x.daemon.Start(w.ctx))
		w.restored(w.finish(done), s.name, before)
		w.remove(x.name)
	}
}

// TestNeverRestarted kills containerd while it starts a container of a pod that is restored, and that the kubelet would
// not restart: the sandbox is ended, and the pod is restored in another one.
func TestNeverRestarted(t *testing.T) {
	w := begin(t)
	n := w.Node(0)
	never := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
	large := command("/bin/workload", "serve", "--mib=256")
	p := w.run(w.pod("web", on(n), never, large))
	before := w.life(p)
	s := w.checkpoint(p)
	hits := 0
	for range 8 {
		w.remove("web")
		done := w.start(w.pod("web", on(n), never, large))
		w.tried(n)
		n.Containerd.Kill()
		w.must(n.Containerd.Start(w.ctx))
		w.restored(w.finish(done), s.name, before)
		if hits += w.attempts(n, "web"); hits >= 2 {
			return
		}
	}
	t.Errorf("containerd was killed after each start of a container, and not during it: %d times during it", hits)
}

// tried waits until a shim of the node has begun to start a container of a pod that is restored.
func (w *world) tried(n *bed.Node) {
	w.Helper()
	w.must(bed.Until(w.ctx, func() error { // at short intervals: the start is over soon
		notes, err := filepath.Glob(n.Path("/run/containerd/io.containerd.runtime.v2.task/k8s.io/*/diapause-tried-*"))
		if err == nil && len(notes) == 0 {
			err = errNotYet
		}
		return err
	}))
}

// attempts returns how many sandboxes a pod had before its present one.
func (w *world) attempts(n *bed.Node, pod string) int {
	w.Helper()
	l, err := n.Runtime.ListPodSandbox(w.ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{
			"io.kubernetes.pod.namespace": w.namespace, "io.kubernetes.pod.name": pod,
		},
	}})
	w.must(err)
	if len(l.Items) != 1 {
		w.Fatalf("pod %s has %d sandboxes", pod, len(l.Items))
	}
	return int(l.Items[0].Metadata.Attempt)
}

// away is how long the API server is gone: longer than a controller holds its Lease without renewing it.
const away = 12 * time.Second

// TestAPIServerAway takes the control plane away while a checkpoint is under way: pods run on, and the
// answer is there when it is back.
func TestAPIServerAway(t *testing.T) {
	w := begin(t)
	p := w.run(w.pod("web", on(w.Node(0))))
	before := w.life(p)
	trigger := w.trigger("first", "web")
	time.Sleep(50 * time.Millisecond)
	w.Server.Kill()
	w.Controllers.Kill()
	w.Scheduler.Kill()
	for began := time.Now(); time.Since(began) < away; time.Sleep(time.Second) {
		w.moves(p)
	}
	w.must(w.Server.Start(w.ctx))
	w.must(w.Controllers.Start(w.ctx))
	w.must(w.Scheduler.Start(w.ctx))
	trigger.ResourceVersion = "" // the server does not remember that one
	name, err := w.outcome(w.ctx, trigger, func() {})
	w.must(err)
	w.remove("web")
	p = w.run(w.pod("web", on(w.Node(0))))
	w.restored(p, name, before)
	s := w.checkpoint(p)
	w.replicated(s.name)
}

// inVain is how many requests of the agents the object store leaves without an answer in TestStorageAway.
const inVain = 20

// TestStorageAway takes the object store away, until the agents have asked it often in vain: pods are frozen and come
// back on their node; on others as soon as it is there again.
func TestStorageAway(t *testing.T) {
	w := begin(t)
	p := w.run(w.pod("web", on(w.Node(0))))
	before := w.life(p)
	asked := w.cluster.agents.unanswered.Load()
	w.gcs.Kill()
	var s snapshotted
	for range 3 {
		s = w.checkpoint(p)
		w.remove("web")
		p = w.run(w.pod("web", on(w.Node(0))))
		w.restored(p, s.name, before)
	}
	w.remove("web")
	w.eventually("requests to the object store", func() error {
		if n := w.cluster.agents.unanswered.Load() - asked; n < inVain {
			return fmt.Errorf("there were %d", n)
		}
		return nil
	})
	w.must(w.gcs.Start(w.ctx))
	w.replicated(s.name)
	w.restored(w.run(w.pod("web", on(w.Node(1)))), s.name, before)
}

// TestDrain drains a node while a pod of it is being frozen: the trigger ends, and the pod comes
// back on the other node.
func TestDrain(t *testing.T) {
	w := begin(t)
	n := w.Node(0)
	p := w.run(w.pod("web", on(n)))
	before := w.life(p)
	s := w.checkpoint(p)
	trigger := w.trigger("late", "web")
	w.Cleanup(func() {
		if _, err := w.Kubectl(context.Background(), "uncordon", n.Name); err != nil {
			t.Error(err)
		}
	})
	w.kubectl("drain", n.Name, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--pod-selector=app=workload",
		"--timeout=60s")
	name, err := w.outcome(w.ctx, trigger, func() {})
	t.Logf("frozen while its node was drained: %q, %v", name, err)
	if errors.Is(err, errFailed) {
		name, err = s.name, nil
	}
	w.must(err)
	again := w.run(w.pod("web"))
	if again.Spec.NodeName == n.Name {
		t.Errorf("the pod is on %s, which was drained", n.Name)
	}
	w.restored(again, name, before)
}

// onePerTrigger fails if a trigger has made more than one snapshot.
func (w *world) onePerTrigger() {
	w.Helper()
	made := make(map[string]string)
	for _, s := range w.snapshots() {
		t := s.Annotations["diapause.dev/trigger"]
		if t == "" {
			w.Errorf("snapshot %s names no trigger", s.Name)
		}
		if other, ok := made[t]; ok {
			w.Errorf("trigger %s has made two snapshots, %s and %s", t, other, s.Name)
		}
		made[t] = s.Name
	}
}

// killAgent ends the agent of a node by SIGKILL. The kubelet starts it again.
func (w *world) killAgent(n *bed.Node) {
	w.Helper()
	w.signalAgent(n, "-KILL")
}

func (w *world) signalAgent(n *bed.Node, signal string) {
	w.Helper()
	pids, err := n.Agents(w.ctx)
	w.must(err)
	_, err = n.Exec(w.ctx, "kill", append([]string{signal}, pids...)...)
	w.must(err)
}

// moves fails unless a pod's workload runs: it is not paused.
func (w *world) moves(p *ready) {
	w.Helper()
	first := w.life(p)
	w.eventually(p.Name+" runs", func() error {
		if now := w.life(p); now.Counter <= first.Counter {
			return fmt.Errorf("it stays at %d", now.Counter)
		}
		return nil
	})
}
