package podspec_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/kube/podspec"
)

// TestExecProbes: probes come as the kubelet runs them, with what it replaces in their commands, and hooks as they are.
func TestExecProbes(t *testing.T) {
	runs := func(command ...string) *corev1.ExecAction { return &corev1.ExecAction{Command: command} }
	probe := func(command ...string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: runs(command...)}}
	}
	pod := new(corev1.Pod)
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "side", StartupProbe: probe("up"),
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: new(corev1.TCPSocketAction)}},
	}}
	pod.Spec.Containers = []corev1.Container{{
		Name: "app", LivenessProbe: probe("sh", "-c", "a $(PORT) $$(PORT) $(NONE) $(cat /x) $ $$ $(FROM)$("),
		ReadinessProbe: probe("ready"),
		Env: []corev1.EnvVar{
			{Name: "PORT", Value: "80"}, {Name: "FROM", ValueFrom: new(corev1.EnvVarSource)},
		},
		Lifecycle: &corev1.Lifecycle{
			PostStart: &corev1.LifecycleHandler{Exec: runs("hook", "$(PORT)")},
			PreStop:   &corev1.LifecycleHandler{Exec: runs("stop", "$(PORT)")},
		},
	}, {Name: "bare", Lifecycle: new(corev1.Lifecycle)}, {
		Name: "both", LivenessProbe: probe("x"), ReadinessProbe: probe("x"),
	}}
	want := []string{
		`STARTUP side ["up"]`, `PROBE app ["sh" "-c" "a 80 $(PORT) $(NONE) $(cat /x) $ $ $("]`, `PROBE app ["ready"] ready`,
		`POST_START app ["hook" "$(PORT)"]`, `PRE_STOP app ["stop" "$(PORT)"]`,
		`PROBE both ["x"]`, `PROBE both ["x"]`,
	}
	var got []string
	for _, p := range podspec.ExecProbes(pod) {
		text := fmt.Sprintf("%v %s %q", p.GetKind(), p.GetContainer(), p.GetCommand())
		if p.GetReadiness() {
			text += " ready"
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
