package rules_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

type policies = []podsnapshotv1.PodSnapshotPolicy

// onNetAdmin gives a policy the annotation with a value.
func onNetAdmin(value string) func(*podsnapshotv1.PodSnapshotPolicy) {
	return func(p *podsnapshotv1.PodSnapshotPolicy) {
		p.Annotations = map[string]string{podsnapshotv1.AnnotationOnNetAdmin: value}
	}
}

// firewall gives a pod an init container with NET_ADMIN.
func firewall(p *corev1.Pod) {
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "fw", SecurityContext: adds("NET_ADMIN")})
}

func adds(capability corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{capability}}}
}

// TestOnNetAdminValue: a policy whose annotation has an unknown value is not Ready, and has checkpoints fail.
func TestOnNetAdminValue(t *testing.T) {
	for value, known := range map[string]bool{"warn": true, "fail": true, "Warn": false, "": false} {
		p := annotatedPolicy(podsnapshotv1.AnnotationOnNetAdmin, value)
		checkVerdict(t, p, podsnapshotv1.AnnotationOnNetAdmin, known)
		_, err := rules.Prepare(pod(firewall), policies{policy("p", onNetAdmin(value))}, find)
		if fails := value != podsnapshotv1.OnNetAdminWarn; rules.Refused(err) != fails {
			t.Errorf("%q: %v, want that it fails: %v", value, err, fails)
		}
	}
}

// TestNetAdminFound: each kind of container counts, whether it runs or has ended, and however it got NET_ADMIN.
func TestNetAdminFound(t *testing.T) {
	app := pod().Spec.Containers[0].Name
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		want string
	}{
		"none":            {func(*corev1.Pod) {}, ""},
		"others":          {func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = adds("NET_RAW") }, ""},
		"an init":         {firewall, "fw"},
		"all":             {func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = adds("ALL") }, app},
		"privileged":      {privileged, app},
		"a debug session": {debugger, "over"},
	} {
		if got := rules.NetAdmin(pod(c.edit), nil).Container; got != c.want {
			t.Errorf("%s: container %q, want %q", name, got, c.want)
		}
	}
}

func privileged(p *corev1.Pod) {
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
}

// debugger gives a pod debug containers, of which the one that has ended had NET_ADMIN.
func debugger(p *corev1.Pod) {
	debugging(p)
	p.Spec.EphemeralContainers[0].SecurityContext = adds("NET_ADMIN")
}

// TestNetAdminPlan: a checkpoint on request, at the pod's end and by the pod itself is refused if the policy says so.
// Of files alone it never is. The plan of the node's operator leaves the decision to the agent.
func TestNetAdminPlan(t *testing.T) {
	fails := policy("p", onNetAdmin(podsnapshotv1.OnNetAdminFail))
	fails.Spec.TriggerConfig.Type = podsnapshotv1.TriggerWorkload
	const want = "pod ns/web is not checkpointed: its container fw has NET_ADMIN, and a restored pod would lack the " +
		"firewall rules, routes and addresses that it may have set: take NET_ADMIN from the container, or annotate the " +
		"PodSnapshotPolicy with diapause.dev/on-net-admin: warn"
	for name, rule := range map[string]func(*corev1.Pod, policies, rules.Find) (*rules.Plan, error){
		"on request": rules.Prepare, "at its end": rules.PrepareTermination, "by itself": rules.PrepareWorkload,
	} {
		if _, err := rule(pod(firewall), policies{fails}, find); err == nil || err.Error() != want || !rules.Refused(err) {
			t.Errorf("%s: got  %v\nwant %s", name, err, want)
		}
		if plan, err := rule(pod(), policies{fails}, find); err != nil || plan.NetAdmin.Container != "" {
			t.Errorf("%s, of another pod: %+v, %v", name, plan, err)
		}
	}
	for name, all := range map[string]policies{"one": {fails}, "two": {policy("o"), fails}, "none": nil} {
		plan := rules.PrepareLocal(pod(firewall), all, find)
		if got := plan.NetAdmin; got.Container != "fw" || got.Fails != (name != "none") {
			t.Errorf("policies %s: %+v", name, got)
		}
	}
	fails.Spec.SnapshotScope = podsnapshotv1.ScopeRootfsOnly
	if _, err := rules.Prepare(pod(firewall), policies{fails}, find); err != nil {
		t.Errorf("files alone: %v", err)
	}
}
