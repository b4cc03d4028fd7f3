package podspec

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	localv1 "diapause.dev/api/local/v1"
)

// ExecProbes returns what the kubelet runs in a pod's containers by exec, as their probes and hooks.
func ExecProbes(pod *corev1.Pod) (all []*localv1.ExecProbe) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			all = append(all, execProbesOf(&list[i])...)
		}
	}
	return all
}

func execProbesOf(c *corev1.Container) (all []*localv1.ExecProbe) {
	for _, x := range []struct {
		probe *corev1.Probe
		kind  localv1.ExecProbe_Kind
	}{
		{c.LivenessProbe, localv1.ExecProbe_PROBE},
		{c.ReadinessProbe, localv1.ExecProbe_PROBE},
		{c.StartupProbe, localv1.ExecProbe_STARTUP},
	} {
		if x.probe != nil && x.probe.Exec != nil {
			command := expanded(x.probe.Exec.Command, c.Env)
			readiness := x.probe == c.ReadinessProbe && !(c.LivenessProbe != nil && c.LivenessProbe.Exec != nil &&
				slices.Equal(c.LivenessProbe.Exec.Command, x.probe.Exec.Command))
			all = append(all, &localv1.ExecProbe{Container: c.Name, Command: command, Kind: x.kind, Readiness: readiness})
		}
	}
	if c.Lifecycle == nil {
		return all
	}
	for _, x := range []struct {
		hook *corev1.LifecycleHandler
		kind localv1.ExecProbe_Kind
	}{
		{c.Lifecycle.PostStart, localv1.ExecProbe_POST_START},
		{c.Lifecycle.PreStop, localv1.ExecProbe_PRE_STOP},
	} {
		if x.hook != nil && x.hook.Exec != nil { // nothing is expanded in it
			all = append(all, &localv1.ExecProbe{Container: c.Name, Command: x.hook.Exec.Command, Kind: x.kind})
		}
	}
	return all
}

// reference is what the kubelet replaces in the commands of probes: a variable, or a dollar sign that is doubled.
var reference = regexp.MustCompile(`\$\$|\$\([^)]*\)`)

// expanded returns a probe's command as the kubelet runs it. The kubelet knows the variables of the container's spec,
// and takes those whose value comes from elsewhere for empty. What names no variable stays as it is.
func expanded(command []string, env []corev1.EnvVar) (out []string) {
	values := make(map[string]string, len(env))
	for _, v := range env {
		values[v.Name] = v.Value
	}
	for _, arg := range command {
		out = append(out, reference.ReplaceAllStringFunc(arg, func(text string) string {
			if text == "$$" {
				return "$"
			}
			if value, ok := values[text[2:len(text)-1]]; ok {
				return value
			}
			return text
		}))
	}
	return out
}
