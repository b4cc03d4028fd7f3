package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/images"
)

// TestSleepUnderKubelet has a pod sleep under a real kubelet, by its annotation: for Kubernetes it goes on running. Its
// probes succeed and do not wake it. It is woken by exec, by a packet, by an annotation, by the clock and by a
// container that is added to it, and is deleted while it sleeps.
func TestSleepUnderKubelet(t *testing.T) {
	t.Parallel()
	w := begin(t)
	p := w.run(w.pod("web", withShell, withProbes))
	before := w.life(p)

	w.sleeps("web", "one")
	w.staysProbed("web")
	if out := w.kubectl("exec", "web", "--container=shell", "--", "echo", "here"); out != "here\n" {
		t.Errorf("exec: %q", out)
	}
	w.wakes("web", "exec")
	w.whole(p, before)

	w.sleeps("web", "two")
	w.whole(p, before) // its packets wake it
	w.wakes("web", "packet")

	w.sleeps("web", "three")
	w.annotate("web", podsnapshotv1.AnnotationWake, "now")
	w.wakes("web", "request")
	w.whole(p, before)

	w.sleeps("web", "four")
	w.annotate("web", podsnapshotv1.AnnotationWakeAt, time.Now().Add(2*time.Second).Format(time.RFC3339))
	w.wakes("web", "time")
	w.whole(p, before)

	w.sleeps("web", "five")
	w.kubectl("debug", "web", "--image="+images.Busybox, "--image-pull-policy=Never", "--container=debugger", "--quiet",
		"--", "/bin/sleep", "infinity")
	w.wakes("web", "create")
	w.must(until(w.ctx, func() error {
		for _, s := range w.get("web").Status.EphemeralContainerStatuses {
			if s.State.Running != nil {
				return nil
			}
		}
		return errors.New("the container of kubectl debug does not run")
	}))
	w.whole(p, before)

	w.sleeps("web", "six")
	w.remove("web")
	events := w.kubectl("get", "events", "--output=custom-columns=:reason,:message")
	for _, want := range []string{podsnapshotv1.ReasonSlept, podsnapshotv1.ReasonWoke, "woken by exec"} {
		if !strings.Contains(events, want) {
			t.Errorf("%q is not in the events:\n%s", want, events)
		}
	}
}

// withShell gives a pod a container in which commands can be run.
func withShell(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
		Name: "shell", Image: images.Busybox, Command: []string{"/bin/sleep", "infinity"},
	})
}

// probePatience is how many seconds a probe may take. With the usual one, a busy machine would be taken for a pod that
// does not answer.
const probePatience = 10

// withProbes has the kubelet probe a pod every five seconds, in two ways.
func withProbes(p *corev1.Pod) {
	port := intstr.FromInt32(8080)
	get, dial := &corev1.HTTPGetAction{Path: "/state", Port: port}, &corev1.TCPSocketAction{Port: port}
	p.Spec.Containers[0].ReadinessProbe = everyFewSeconds(corev1.ProbeHandler{HTTPGet: get})
	p.Spec.Containers[0].LivenessProbe = everyFewSeconds(corev1.ProbeHandler{TCPSocket: dial})
}

// everyFewSeconds is a probe that the kubelet runs every five seconds. On a busy machine a pod falls asleep within
// seconds: if the kubelet asked more often, each time a probe would come meanwhile.
func everyFewSeconds(h corev1.ProbeHandler) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 5, TimeoutSeconds: probePatience, ProbeHandler: h}
}

// TestProbesAsleep: probes by HTTPS and by gRPC succeed while a pod sleeps, and do not wake it.
func TestProbesAsleep(t *testing.T) {
	t.Parallel()
	w := begin(t)
	p := w.run(w.pod("web", withProbed))
	before := w.life(p)
	w.sleeps("web", "one")
	w.staysProbed("web")
	w.whole(p, before)
	w.wakes("web", "packet")
	w.sleeps("web", "two")
	w.staysProbed("web")
}

// withProbed gives a pod a container that the kubelet probes by HTTPS and by gRPC.
func withProbed(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
		Name: "probed", Image: images.Workload, Command: []string{"/bin/probed"},
		ReadinessProbe: everyFewSeconds(corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Path: "/", Port: intstr.FromInt32(8443)},
		}),
		LivenessProbe: everyFewSeconds(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9090}}),
	})
}

// annotate gives a pod an annotation.
func (w *world) annotate(pod, key, value string) {
	w.Helper()
	w.kubectl("annotate", "pod", pod, "--overwrite", key+"="+value)
}

// mostTries is how often [world.sleeps] asks. A pod does not fall asleep while a connection of a probe is open, and on
// a busy machine one mostly is.
const mostTries = 30

// sleeps asks for a pod's sleep until it sleeps. Whoever looks at a pod may send packets.
func (w *world) sleeps(pod, id string) {
	w.Helper()
	for try := 0; ; try++ {
		request := fmt.Sprint(id, "-", try)
		w.annotate(pod, podsnapshotv1.AnnotationSleep, request)
		var s podsnapshotv1.SleepStatus
		w.must(until(w.ctx, func() error {
			s = podsnapshotv1.ParseSleepStatus(w.get(pod).Annotations)
			if s.Sleep != request || s.State == podsnapshotv1.SleepWorking {
				return fmt.Errorf("status %+v", s)
			}
			return nil
		}))
		if s.State == podsnapshotv1.SleepAsleep {
			break
		}
		if try == mostTries {
			w.Fatalf("pod %s does not sleep: %+v", pod, s)
		}
	}
	w.must(until(w.ctx, func() error { return w.condition(pod, corev1.ConditionTrue, "") }))
}

// wakes waits until a pod's condition says that it was woken by a cause.
func (w *world) wakes(pod, cause string) {
	w.Helper()
	w.must(until(w.ctx, func() error { return w.condition(pod, corev1.ConditionFalse, "woken by "+cause) }))
}

// wakesBy calls do, by which a pod is woken, and waits until its condition has said so. It sees that also of a pod that
// sleeps again soon.
func (w *world) wakesBy(pod, cause string, do func()) {
	w.Helper()
	from := &metav1.ListOptions{ResourceVersion: w.get(pod).ResourceVersion}
	changes, err := w.client.Watch(w.ctx, new(corev1.PodList), &client.ListOptions{
		Namespace: w.namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", pod), Raw: from,
	})
	w.must(err)
	defer changes.Stop()
	do()
	for c := range changes.ResultChan() {
		p, ok := c.Object.(*corev1.Pod)
		if !ok {
			w.Fatalf("watch of pod %s: %+v", pod, c.Object)
		}
		if err = sleepCondition(p, corev1.ConditionFalse, "woken by "+cause); err == nil {
			return
		}
	}
	w.Fatalf("pod %s, to be woken by %s: %v", pod, cause, err)
}

// condition returns an error unless a pod's condition has a status and its message a text.
func (w *world) condition(pod string, status corev1.ConditionStatus, text string) error {
	return sleepCondition(w.get(pod), status, text)
}

func sleepCondition(p *corev1.Pod, status corev1.ConditionStatus, text string) error {
	for _, c := range p.Status.Conditions {
		if c.Type == podsnapshotv1.ConditionAsleep && c.Status == status && strings.Contains(c.Message, text) {
			return nil
		}
	}
	b, err := json.Marshal(p.Status.Conditions)
	return errors.Join(fmt.Errorf("want %s, %q: %s", status, text, b), err)
}

func (w *world) get(pod string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: pod}}
	w.must(w.client.Get(w.ctx, client.ObjectKeyFromObject(p), p))
	return p
}

// well fails unless a pod sleeps, and is Running and Ready, without a restart.
func (w *world) well(pod string) {
	w.Helper()
	p := w.get(pod)
	for _, c := range p.Status.ContainerStatuses {
		if p.Status.Phase != corev1.PodRunning || !c.Ready || c.RestartCount != 0 || c.State.Running == nil {
			w.Fatalf("the pod is %s, its container %+v", p.Status.Phase, c)
		}
	}
	w.must(w.condition(pod, corev1.ConditionTrue, ""))
}
