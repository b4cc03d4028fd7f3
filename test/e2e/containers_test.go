package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"diapause.dev/test/images"
)

// volumes are what the pod of TestContainers has mounted beside its emptyDir.
const volumes = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /var/lib/%[1]s, type: DirectoryOrCreate}
  claimRef: {namespace: %[1]s, name: claim}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, namespace: %[1]s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: "", volumeName: %[1]s}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: %[1]s}
data: {key: config-%[2]s}
---
apiVersion: v1
kind: Secret
metadata: {name: secret, namespace: %[1]s}
stringData: {key: secret-%[2]s}
`

// counting writes a number that grows by one each time into a file that both containers see.
const counting = `i=0; while true; do i=$((i+1)); echo $i > /shared/count; sleep 0.05; done`

// TestContainers freezes a pod of two containers, a sidecar and an init container, with volumes of
// all kinds, and wakes it with another environment and other contents of what is mounted afresh.
func TestContainers(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(fmt.Sprintf(volumes, w.namespace, "old"))
	w.Cleanup(func() {
		if _, err := w.Kubectl(context.Background(), "delete", "pv", w.namespace, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	n := w.Node(0)
	first := w.run(w.pod("web", on(n), w.several("old")))
	before := w.life(first)
	w.reads("web", "/shared/init", "1")
	w.write("web", "/shared/mark", "kept")
	w.write("web", "/memory/mark", "remembered")
	w.write("web", "/scratch/mark", "scratched")
	w.write("web", "/claim/mark", "claimed")
	count := w.count("web")
	s := w.checkpoint(first)
	w.remove("web")

	w.apply(fmt.Sprintf(volumes, w.namespace, "new"))
	again := w.run(w.pod("web", on(n), w.several("new")))
	w.restored(again, s.name, before)
	if got := w.count("web"); got < count {
		t.Errorf("the side container is at %d, it was at %d", got, count)
	}
	w.reads("web", "/shared/init", "1")
	w.reads("web", "/shared/mark", "kept")
	w.reads("web", "/memory/mark", "remembered")
	w.reads("web", "/scratch/mark", "scratched")
	w.reads("web", "/claim/mark", "claimed")
	w.reads("web", "/config/key", "config-new")
	w.reads("web", "/secret/key", "secret-new")
	if token := w.exec("web", "", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"); token == "" {
		t.Error("no token")
	}
	if env := w.exec("web", "", "cat", "/proc/gvisor/spec_environ"); !strings.Contains(env, "WORKLOAD_COLOUR=new") {
		t.Errorf("the new environment is not in %q", env)
	}
	w.operates(again)
}

// TestStartupProbeOfSidecar: gVisor restores a pod once all of its containers have come, and the kubelet waits with the
// next one until the startup probe and the postStart hook of the one before have succeeded. So they succeed: probes by
// HTTP, TCP, gRPC and exec, and hooks by HTTP and exec. A hook by exec does not run again, not even that of the last
// container.
func TestStartupProbeOfSidecar(t *testing.T) {
	t.Parallel()
	w := begin(t)
	first := w.run(w.pod("web", withProbedSidecars))
	before := w.life(first)
	w.hooked("web", "x\n")
	s := w.checkpoint(first)
	w.remove("web")
	again := w.run(w.pod("web", withProbedSidecars))
	w.restored(again, s.name, before)
	w.hooked("web", "x\n")
	for _, c := range append(again.Status.InitContainerStatuses, again.Status.ContainerStatuses...) {
		if c.RestartCount > 0 {
			t.Errorf("container %s was restarted: %+v", c.Name, c)
		}
	}
	if events := w.kubectl("get", "events"); strings.Contains(events, "FailedPostStartHook") {
		t.Errorf("an event says that a hook has failed:\n%s", events)
	}
}

// withProbedSidecars gives a pod native sidecars with a startup probe of each kind, and hooks of each kind. Each hook
// by exec adds a line to a file. That by HTTP asks the sidecar before its own.
func withProbedSidecars(p *corev1.Pod) {
	hook := &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
		Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "echo x >> /tmp/hooked"}},
	}}
	get := &corev1.HTTPGetAction{Path: "/state", Port: intstr.FromInt32(9091)}
	serve := []string{"/bin/workload", "serve", "--mib=1", "--listen=:9091"}
	idle := []string{"/bin/sleep", "100000"}
	p.Spec.InitContainers = []corev1.Container{
		sidecar("http", serve, corev1.ProbeHandler{HTTPGet: get}),
		sidecar("tcp", idle, corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9091)}}),
		sidecar("grpc", []string{"/bin/probed"}, corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9090}}),
		sidecar("exec", idle, corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: probeCommand}}),
	}
	p.Spec.InitContainers[0].Lifecycle, p.Spec.Containers[0].Lifecycle = hook, hook
	p.Spec.InitContainers[1].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: get}}
}

// sidecar returns a native sidecar that has a startup probe.
func sidecar(name string, command []string, h corev1.ProbeHandler) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	return corev1.Container{
		Name: name, Image: images.Workload, RestartPolicy: &always, Command: command,
		StartupProbe: &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 120},
	}
}

// hooked fails unless the hooks by exec of withProbedSidecars have left that.
func (w *world) hooked(pod, want string) {
	w.Helper()
	for _, c := range []string{"http", "app"} {
		if got := w.exec(pod, c, "cat", "/tmp/hooked"); got != want {
			w.Errorf("the hook of container %s has left %q, want %q", c, got, want)
		}
	}
}

// several makes a pod of the containers and volumes that [TestContainers] is about.
func (w *world) several(colour string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		shared := corev1.VolumeMount{Name: "shared", MountPath: "/shared"}
		memory := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
		claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}
		config := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: memory}},
			{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}},
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: config}},
			{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}}},
		}
		shell := func(name, script string) corev1.Container {
			return corev1.Container{
				Name: name, Image: images.Busybox, Command: []string{"/bin/sh", "-c", script},
				VolumeMounts: []corev1.VolumeMount{shared},
			}
		}
		sidecar := shell("sidecar", "echo sidecar; sleep 100000")
		sidecar.RestartPolicy = &always
		p.Spec.InitContainers = []corev1.Container{
			shell("init", `echo -n $(( $(cat /shared/init 2>/dev/null || echo 0) + 1 )) > /shared/init`), sidecar,
		}
		app := &p.Spec.Containers[0]
		app.Env = []corev1.EnvVar{{Name: "WORKLOAD_COLOUR", Value: colour}}
		app.VolumeMounts = []corev1.VolumeMount{
			shared,
			{Name: "memory", MountPath: "/memory"},
			{Name: "scratch", MountPath: "/scratch"},
			{Name: "claim", MountPath: "/claim"},
			{Name: "config", MountPath: "/config"},
			{Name: "secret", MountPath: "/secret"},
		}
		get := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/state", Port: intstr.FromInt32(8080)}}
		app.ReadinessProbe, app.LivenessProbe = everyFewSeconds(get), everyFewSeconds(get)
		p.Spec.Containers = append(p.Spec.Containers, shell("side", counting))
	}
}

// count reads how far the side container of a pod has counted.
func (w *world) count(pod string) (n int) {
	w.Helper()
	w.eventually("the side container counts", func() (err error) {
		n, err = strconv.Atoi(strings.TrimSpace(w.exec(pod, "side", "cat", "/shared/count")))
		return err
	})
	return n
}

// operates does with a pod what operators do: the logs of its containers, and that none was
// restarted.
func (w *world) operates(p *ready) {
	w.Helper()
	w.exec(p.Name, "sidecar", "true")
	for _, c := range []string{"app", "side", "sidecar"} {
		w.kubectl("logs", p.Name, "-c", c)
	}
	now := w.current(p.Name)
	for _, s := range append(now.Status.ContainerStatuses, now.Status.InitContainerStatuses...) {
		if s.RestartCount > 0 {
			w.Errorf("container %s was restarted: %+v", s.Name, s)
		}
	}
	if c := condition(now.Pod, corev1.PodReady); c.Status != corev1.ConditionTrue {
		w.Errorf("the pod is not Ready any more: %+v", c)
	}
}
