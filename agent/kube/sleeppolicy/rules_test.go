package sleeppolicy

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/idle"
	"diapause.dev/agent/ready"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// policy returns a policy for the pods with this label app; empty: for all.
func policy(name, app string) sleepv1alpha1.SleepPolicy {
	p := sleepv1alpha1.SleepPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
		Spec: sleepv1alpha1.SleepPolicySpec{
			IdleAfter: "1m30s", MinAwake: "10s",
			Idle: sleepv1alpha1.IdleLimits{CPUMillicores: 50, PacketsPerMinute: 6},
		},
	}
	if app != "" {
		p.Spec.Selector.MatchLabels = map[string]string{"app": app}
	}
	return p
}

func TestVerdict(t *testing.T) {
	a, b, all := policy("a", "a"), policy("b", "b"), policy("all", "")
	malformed := policy("malformed", "c")
	malformed.Spec.IdleAfter = "soon"
	unselectable := policy("unselectable", "")
	unselectable.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Has"}}
	for name, tc := range map[string]struct {
		policy  sleepv1alpha1.SleepPolicy
		all     []sleepv1alpha1.SleepPolicy
		ok      bool
		reason  string
		message string
	}{
		"alone": {a, []sleepv1alpha1.SleepPolicy{a, b}, true, sleepv1alpha1.ReasonValid, "can be used"},
		"beside": {
			a, []sleepv1alpha1.SleepPolicy{a, b, all}, true, sleepv1alpha1.ReasonOverlapping, "a pod that all also",
		},
		"malformed":    {malformed, nil, false, sleepv1alpha1.ReasonInvalid, "spec.idleAfter"},
		"unselectable": {unselectable, nil, false, sleepv1alpha1.ReasonInvalid, "spec.selector"},
	} {
		ok, reason, message := Verdict(&tc.policy, tc.all)
		if ok != tc.ok || reason != tc.reason || !strings.Contains(message, tc.message) {
			t.Errorf("%s: %v, %s, %s", name, ok, reason, message)
		}
	}
}

func TestSelecting(t *testing.T) {
	all := []sleepv1alpha1.SleepPolicy{policy("web", "web"), policy("other", "other"), policy("all", "")}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Labels: map[string]string{"app": "web"}}}
	if found, names := selecting(pod, all); len(found) != 2 || names != "all, web" {
		t.Errorf("%d policies: %s", len(found), names)
	}
	if found, names := selecting(pod, all[1:2]); len(found) != 0 || names != "" {
		t.Errorf("%d policies: %s", len(found), names)
	}
}

// TestRuleOf: each kind of probe that comes to the pod's address is known, and only those.
func TestRuleOf(t *testing.T) {
	probe := func(seconds int32, h corev1.ProbeHandler) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: seconds, ProbeHandler: h}
	}
	containers := []corev1.Container{
		{
			LivenessProbe:  probe(10, corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}),
			ReadinessProbe: probe(5, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{}}),
			StartupProbe:   probe(1, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{}}), // has ended
		},
		{
			LivenessProbe:  probe(1, corev1.ProbeHandler{Exec: &corev1.ExecAction{}}),
			ReadinessProbe: probe(1, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "elsewhere"}}),
		},
		{LivenessProbe: probe(20, corev1.ProbeHandler{GRPC: &corev1.GRPCAction{}})},
	}
	always := corev1.ContainerRestartPolicyAlways
	https := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS}}
	inits := []corev1.Container{
		{},
		{RestartPolicy: &always, ReadinessProbe: probe(15, https)}, // a native sidecar
	}
	p := policy("p", "")
	p.Spec.Idle.AnswerWithin = "2m"
	got, err := ruleOf(&p, probed(&corev1.Pod{Spec: corev1.PodSpec{Containers: containers, InitContainers: inits}}))
	want := idle.Rule{
		After: 90 * time.Second, MinAwake: 10 * time.Second, CPU: 0.05, Packets: 6, AnswerWithin: 2 * time.Minute,
		Probes: []idle.Probe{
			{Every: 10 * time.Second, Packets: packetsTCP},
			{Every: 5 * time.Second, Packets: packetsHTTP},
			{Every: 20 * time.Second, Packets: packetsGRPC},
			{Every: 15 * time.Second, Packets: packetsTLS},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// TestWishOf: what policies wish for the pods that they select.
func TestWishOf(t *testing.T) {
	const auto, always, never = sleepv1alpha1.ReadyAuto, sleepv1alpha1.ReadyAlways, sleepv1alpha1.ReadyNever
	for name, tc := range map[string]struct {
		policies []sleepv1alpha1.Readiness
		want     ready.Wish
	}{
		"none":                 {nil, ready.Auto},
		"of an earlier server": {[]sleepv1alpha1.Readiness{""}, ready.Auto},
		"auto":                 {[]sleepv1alpha1.Readiness{auto}, ready.Auto},
		"always":               {[]sleepv1alpha1.Readiness{always}, ready.Always},
		"never":                {[]sleepv1alpha1.Readiness{never}, ready.Never},
		"always, and another":  {[]sleepv1alpha1.Readiness{always, auto}, ready.Auto},
		"never, and another":   {[]sleepv1alpha1.Readiness{always, never}, ready.Never},
	} {
		var all []*sleepv1alpha1.SleepPolicy
		for _, r := range tc.policies {
			all = append(all, &sleepv1alpha1.SleepPolicy{Spec: sleepv1alpha1.SleepPolicySpec{Ready: r}})
		}
		if w := wishOf(all); w != tc.want {
			t.Errorf("%s: %q, want %q", name, w, tc.want)
		}
	}
}
