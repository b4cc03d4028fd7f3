package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// held is how long the sessions of TestSessionsAreUse last: longer than the policy wants a pod to be idle.
const held = 8 * time.Second

// TestSessionsAreUse: a pod whose policy has it sleep stays awake while a process runs in it that kubectl exec has
// started, and while somebody is connected to a forwarded port. Nothing moves meanwhile. No event complains.
func TestSessionsAreUse(t *testing.T) {
	t.Parallel()
	w := begin(t)
	p := w.run(w.pod("web", withInner))
	ended := make(chan error, 1)
	go func() {
		_, err := w.Kubectl(w.ctx, "--namespace="+w.namespace, "exec", "web", "--container=app", "--", "sleep",
			fmt.Sprint(held.Seconds()))
		ended <- err
	}()
	before := w.life(p)
	w.apply(fmt.Sprintf(sleepPolicy, w.namespace))
	w.staysAwake("web", func() bool { return len(ended) > 0 })
	w.must(<-ended)
	w.must(until(w.ctx, func() error { return w.condition("web", corev1.ConditionTrue, "") }))
	c, err := net.Dial("tcp", strings.TrimPrefix(w.forward("web", innerPort), "http://"))
	w.must(err)
	defer c.Close()
	w.wakes("web", "port-forward")
	over := time.Now().Add(held)
	w.staysAwake("web", func() bool { return time.Now().After(over) })
	w.must(c.Close())
	w.must(until(w.ctx, func() error { return w.condition("web", corev1.ConditionTrue, "") }))
	if events := w.kubectl("get", "events"); strings.Contains(events, podsnapshotv1.ReasonStaysAwake) {
		t.Errorf("an event says that the pod stays awake:\n%s", events)
	}
	w.whole(p, before)
}

// staysAwake fails if a pod sleeps before over returns true.
func (w *world) staysAwake(pod string, over func() bool) {
	w.Helper()
	for ; !over(); time.Sleep(200 * time.Millisecond) {
		if w.condition(pod, corev1.ConditionTrue, "") == nil {
			w.Fatalf("pod %s sleeps", pod)
		}
	}
}

// probeCommand is what the probes of withExecProbes run.
var probeCommand = []string{"/bin/test", "-e", "/bin/workload"}

// withExecProbes has the kubelet probe a pod every five seconds, by exec. On a busy machine a command takes some
// seconds: more often, one would always be under way.
func withExecProbes(p *corev1.Pod) {
	probe := &corev1.Probe{
		PeriodSeconds: 5, TimeoutSeconds: probePatience,
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: probeCommand}},
	}
	p.Spec.Containers[0].LivenessProbe, p.Spec.Containers[0].ReadinessProbe = probe, probe.DeepCopy()
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		Exec: &corev1.ExecAction{Command: []string{"/bin/test", "-e", "/none"}}, // fails if it is run
	}}
}

// TestExecProbesAsleep: probes by exec are no use of a pod. While it sleeps they succeed and do not wake it. Another
// command does. Nor does its preStop hook wake it, when it is deleted in its sleep.
func TestExecProbesAsleep(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(strings.Replace(fmt.Sprintf(sleepPolicy, w.namespace), "500", "2000", 1)) // probes take processor time
	p := w.run(w.pod("web", withExecProbes))
	before := w.life(p)
	w.must(until(w.ctx, func() error { return w.condition("web", corev1.ConditionTrue, "") }))
	w.staysProbed("web")
	w.wakesBy("web", "exec", func() {
		if out := w.kubectl("exec", "web", "--", "echo", "here"); out != "here\n" {
			t.Errorf("exec: %q", out)
		}
	})
	w.whole(p, before)
	w.must(until(w.ctx, func() error { return w.condition("web", corev1.ConditionTrue, "") }))
	w.remove("web")
	events := w.kubectl("get", "events", "--output=custom-columns=:reason,:message")
	if strings.Count(events, "woken by exec") != 1 || strings.Contains(events, "FailedPreStopHook") {
		t.Errorf("the hook was run:\n%s", events)
	}
}
