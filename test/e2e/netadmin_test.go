package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/images"
)

// withFirewall gives a pod an init container that adds an address, which neither sleep nor snapshot keeps.
func withFirewall(p *corev1.Pod) {
	p.Spec.InitContainers = []corev1.Container{{
		Name: "fw", Image: images.Busybox, Command: []string{"/bin/ip", "addr", "add", "10.200.0.1/32", "dev", "lo"},
		SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{
			Add: []corev1.Capability{"NET_ADMIN"},
		}},
	}}
}

// TestNetAdmin: a pod that may have changed its network never sleeps, by policy, by annotation and by the node's
// operator, and each says why. A trigger warns or, if the policy has it fail, fails. So does the node's operator.
func TestNetAdmin(t *testing.T) {
	t.Parallel()
	w := begin(t)
	n := w.Node(0)
	w.apply(fmt.Sprintf(sleepPolicy, w.namespace))
	p := w.run(w.pod("web", on(n), withFirewall))
	const never, lacks = "never sleeps: its container fw has NET_ADMIN", "a restored pod lacks the firewall rules"
	says := func(reason, text string) {
		w.Helper()
		w.eventually("an event says why", func() error {
			return w.event("web", func(e *corev1.Event) bool {
				return e.Type == corev1.EventTypeWarning && e.Reason == reason && strings.Contains(e.Message, text)
			})
		})
	}
	says(podsnapshotv1.ReasonStaysAwake, "The pod stays awake: pod "+w.namespace+"/web "+never)
	w.annotate("web", podsnapshotv1.AnnotationSleep, "now")
	w.eventually("the annotation's answer", func() error {
		s := podsnapshotv1.ParseSleepStatus(w.get("web").Annotations)
		if s.State != podsnapshotv1.SleepFailed || !strings.Contains(s.Message, never) {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	tool := w.tool(n)
	if out, err := tool("sleep", w.namespace+"/web"); err == nil || !strings.Contains(err.Error()+out, never) {
		t.Errorf("the operator's sleep: %s, %v", out, err)
	}

	s := w.checkpoint(p)
	says(podsnapshotv1.EventReason, lacks)
	c := meta.FindStatusCondition(w.snapshot(s.name).Status.Conditions, podsnapshotv1.ConditionCheckpoint)
	if c == nil || !strings.Contains(c.Message, lacks) {
		t.Errorf("the condition of the PodSnapshot: %+v", c)
	}

	w.kubectl("annotate", "podsnapshotpolicy", "policy",
		podsnapshotv1.AnnotationOnNetAdmin+"="+podsnapshotv1.OnNetAdminFail)
	w.eventually("a trigger fails", func() error { // the agent's cache may be behind
		_, err := w.outcome(w.ctx, w.trigger(fmt.Sprint("fails-", len(w.snapshots())), "web"), func() {})
		if err == nil || !strings.Contains(err.Error(), "not checkpointed: its container fw has NET_ADMIN") {
			return fmt.Errorf("the trigger's outcome: %w, %v", errNotYet, err)
		}
		return nil
	})
	out, err := tool("checkpoint", w.namespace+"/web")
	if err == nil || !strings.Contains(err.Error()+out, "container fw") {
		t.Errorf("the operator's checkpoint: %s, %v", out, err)
	}
	w.sound(p)
}
