package podspec

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"diapause.dev/agent/netadmin"
)

const (
	// gvisorAnnotations begins all annotations that gVisor's shim acts on.
	gvisorAnnotations = "dev.gvisor."
	// completionIndexLabel is the only label that counts: a job's pods have it in their environment.
	completionIndexLabel = "batch.kubernetes.io/job-completion-index"
)

// Distil returns the distilled spec of a pod as the API server stores it, with defaults filled in.
func Distil(pod *corev1.Pod) *Spec {
	d := distiller{tokens: tokenVolumes(pod)}
	return &Spec{
		Annotations:           gvisorOnly(pod.Annotations),
		JobCompletionIndex:    pod.Labels[completionIndexLabel],
		RuntimeClassName:      deref(pod.Spec.RuntimeClassName),
		SecurityContext:       nonZero(pod.Spec.SecurityContext),
		HostNetwork:           pod.Spec.HostNetwork,
		HostPID:               pod.Spec.HostPID,
		HostIPC:               pod.Spec.HostIPC,
		ShareProcessNamespace: deref(pod.Spec.ShareProcessNamespace),
		Volumes:               d.volumes(pod.Spec.Volumes),
		InitContainers:        d.containers(pod.Spec.InitContainers),
		Containers:            d.containers(pod.Spec.Containers),
	}
}

// distiller gives volumes their names.
type distiller struct {
	tokens map[string]bool // volumes that the API server has added under a random name
}

// tokenName is how the API server names the volume of a pod's service account token.
var tokenName = regexp.MustCompile(`^kube-api-access-[a-z0-9]{5}$`)

// tokenAlias replaces such a name. It is not a valid name for a volume.
const tokenAlias = "kube-api-access-"

func tokenVolumes(pod *corev1.Pod) map[string]bool {
	tokens := make(map[string]bool)
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && tokenName.MatchString(v.Name) {
			tokens[v.Name] = true
		}
	}
	return tokens
}

func (d distiller) name(volume string) string {
	if d.tokens[volume] {
		return tokenAlias
	}
	return volume
}

func (d distiller) volumes(volumes []corev1.Volume) (out []Volume) {
	for _, v := range volumes {
		out = append(out, Volume{
			Name: d.name(v.Name), Source: sourceKind(&v.VolumeSource),
			HostPath: v.HostPath, PersistentVolumeClaim: v.PersistentVolumeClaim, ConfigMap: v.ConfigMap,
		})
	}
	slices.SortFunc(out, func(a, b Volume) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// sourceKind returns the name of the field that is set in a source. It is empty for a field that this version of the
// Kubernetes API does not know.
func sourceKind(s *corev1.VolumeSource) string {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

func (d distiller) containers(containers []corev1.Container) (out []Container) {
	for i := range containers {
		out = append(out, d.container(&containers[i]))
	}
	return out
}

func (d distiller) container(c *corev1.Container) Container {
	out := Container{
		Name: c.Name, Image: c.Image, Sidecar: Sidecar(c),
		Command: c.Command, Args: c.Args, WorkingDir: c.WorkingDir,
		Ports: ports(c.Ports), Mounts: d.mounts(c.VolumeMounts), Devices: d.devices(c.VolumeDevices),
		TerminationMessagePath: c.TerminationMessagePath, TerminationMessagePolicy: c.TerminationMessagePolicy,
		SecurityContext: nonZero(c.SecurityContext),
		Stdin:           c.Stdin, StdinOnce: c.StdinOnce, TTY: c.TTY,
	}
	if c.Lifecycle != nil {
		out.PostStart, out.PreStop = c.Lifecycle.PostStart, c.Lifecycle.PreStop
	}
	return out
}

// Sidecar reports whether an init container runs beside the containers and not before them.
func Sidecar(c *corev1.Container) bool {
	return deref(c.RestartPolicy) == corev1.ContainerRestartPolicyAlways
}

func ports(ports []corev1.ContainerPort) (out []Port) {
	for _, p := range ports {
		out = append(out, Port{Name: p.Name, Number: p.ContainerPort, Protocol: p.Protocol})
	}
	slices.SortStableFunc(out, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func (d distiller) mounts(mounts []corev1.VolumeMount) (out []Mount) {
	for _, m := range mounts {
		out = append(out, Mount{
			Name: d.name(m.Name), Path: m.MountPath, ReadOnly: m.ReadOnly, RecursiveReadOnly: m.RecursiveReadOnly,
			SubPath: m.SubPath, SubPathExpr: m.SubPathExpr, Propagation: m.MountPropagation,
		})
	}
	slices.SortStableFunc(out, func(a, b Mount) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

func (d distiller) devices(devices []corev1.VolumeDevice) (out []string) {
	for _, v := range devices {
		out = append(out, d.name(v.Name))
	}
	slices.Sort(out)
	return out
}

func gvisorOnly(annotations map[string]string) map[string]string {
	out := make(map[string]string)
	for k, v := range annotations {
		if strings.HasPrefix(k, gvisorAnnotations) {
			out[k] = v
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// nonZero returns nil instead of a pointer to a zero value.
func nonZero[T any](p *T) *T {
	if p == nil || reflect.ValueOf(p).Elem().IsZero() {
		return nil
	}
	return p
}

// Debugging returns the names of a pod's ephemeral containers that run or are about to. A pod that is made anew has
// none of them.
func Debugging(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.EphemeralContainers {
		name := pod.Spec.EphemeralContainers[i].Name
		ended := slices.ContainsFunc(pod.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.Name == name && s.State.Terminated != nil
		})
		if !ended {
			names = append(names, name)
		}
	}
	return names
}

// EndingInits returns the names of a pod's init containers that end before its containers run.
func EndingInits(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.InitContainers {
		if x := &pod.Spec.InitContainers[i]; !Sidecar(x) {
			names = append(names, x.Name)
		}
	}
	return names
}

// NetAdmin returns the name of a container of a pod that may change the pod's network, or nothing. A container counts
// although it has ended: what it has set stays.
func NetAdmin(pod *corev1.Pod) string {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if mayAdminNet(list[i].SecurityContext) {
				return list[i].Name
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if mayAdminNet(pod.Spec.EphemeralContainers[i].SecurityContext) {
			return pod.Spec.EphemeralContainers[i].Name
		}
	}
	return ""
}

func mayAdminNet(s *corev1.SecurityContext) bool {
	if s == nil {
		return false
	}
	var add, drop []string
	if c := s.Capabilities; c != nil {
		add, drop = texts(c.Add), texts(c.Drop)
	}
	return deref(s.Privileged) || netadmin.Granted(add, drop)
}

func texts(capabilities []corev1.Capability) (out []string) {
	for _, c := range capabilities {
		out = append(out, string(c))
	}
	return out
}
