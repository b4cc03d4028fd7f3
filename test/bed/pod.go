package bed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"diapause.dev/test/images"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSpec says what pod to run. Only Name is needed.
type PodSpec struct {
	Name        string
	Namespace   string // "default" if empty
	UID         string // one of its own if empty
	Attempt     uint32 // which sandbox of the pod it is, as the kubelet counts them
	Handler     string // Diapause if empty
	Labels      map[string]string
	Annotations map[string]string
	// Containers are one busybox that sleeps if there is none.
	Containers []Container
	// MemoryLimit is that of the pod's cgroup, in bytes, which is made before the pod as a kubelet does it; 0: none.
	MemoryLimit int64
	// CPULimit is the pod's limit of processor time, in thousandths of a processor; 0: none.
	CPULimit int
	// Made, if set, is called once there is a sandbox, before the containers are created: what a kubelet does
	// at that time, such as mounting parts of volumes, can be done there.
	Made func() error
}

// Container is a container of a pod.
type Container struct {
	// ID is containerd's; ignored in a PodSpec.
	ID      string
	Name    string
	Image   string   // images.Busybox if empty
	Command []string // the image's own if empty
	Env     map[string]string
	Mounts  []Mount
	TTY     bool // it has a terminal
	Stdin   bool // it has a standard input, which can be attached to
	// Capabilities are given to it beside containerd's own set: "NET_ADMIN".
	Capabilities []string
}

// Mount shows a directory of the node in a container.
type Mount struct {
	Host, Container string
	ReadOnly        bool
}

// Pod is a pod of the bed.
type Pod struct {
	ID, UID, Name, Namespace string
	// IP is the pod's address, which can be dialled from the program.
	IP string
	// IPv6 is another, if the bed is DualStack.
	IPv6 string
	// Containers have ID and Name; in the order of the PodSpec, or by name if the
	// pod was looked up.
	Containers []Container
}

// Container returns the id of the pod's container of that name, or "".
func (p *Pod) Container(name string) string {
	for _, c := range p.Containers {
		if c.Name == name {
			return c.ID
		}
	}
	return ""
}

// RunPod starts a pod by the calls that a kubelet makes, and returns when its
// containers have been started. A pod that fails to start is removed.
func (b *Bed) RunPod(ctx context.Context, spec PodSpec) (*Pod, error) {
	spec = spec.withDefaults()
	pod, err := b.RunSandbox(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err = spec.Made(); err == nil {
		err = b.startContainers(ctx, pod, b.sandboxConfig(spec), spec.Containers)
	}
	if err != nil {
		return nil, errors.Join(err, b.RemovePod(context.WithoutCancel(ctx), pod.ID))
	}
	if err := b.lookUpAddresses(ctx, pod); err != nil {
		return nil, errors.Join(err, b.RemovePod(context.WithoutCancel(ctx), pod.ID))
	}
	return pod, nil
}

// RunSandbox starts a pod without its containers.
func (b *Bed) RunSandbox(ctx context.Context, spec PodSpec) (*Pod, error) {
	spec = spec.withDefaults()
	config := b.sandboxConfig(spec)
	if err := makeCgroup(config.Linux.CgroupParent[1:]); err != nil { // as a kubelet does
		return nil, fmt.Errorf("bed: %w", err)
	}
	if err := limitMemory(config.Linux.CgroupParent, spec.MemoryLimit); err != nil {
		return nil, err
	}
	if err := limitCPU(config.Linux.CgroupParent, spec.CPULimit); err != nil {
		return nil, err
	}
	r, err := b.Runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: spec.Handler})
	if err != nil {
		return nil, fmt.Errorf("bed: run pod %s/%s: %w", spec.Namespace, spec.Name, err)
	}
	return &Pod{ID: r.PodSandboxId, UID: config.Metadata.Uid, Name: spec.Name, Namespace: spec.Namespace}, nil
}

// Pod looks up a pod by its id, for instance one that the agent has started.
func (b *Bed) Pod(ctx context.Context, id string) (*Pod, error) {
	s, err := b.Runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, fmt.Errorf("bed: pod %s: %w", id, err)
	}
	pod := &Pod{
		ID: id, UID: s.Status.Metadata.Uid, Name: s.Status.Metadata.Name, Namespace: s.Status.Metadata.Namespace,
	}
	pod.setAddresses(s.Status)
	l, err := b.Runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: id}})
	if err != nil {
		return nil, fmt.Errorf("bed: containers of pod %s: %w", id, err)
	}
	for _, c := range l.Containers {
		pod.Containers = append(pod.Containers, Container{ID: c.Id, Name: c.Metadata.Name})
	}
	slices.SortFunc(pod.Containers, func(a, b Container) int { return strings.Compare(a.Name, b.Name) })
	return pod, nil
}

// Pods looks up all pods of the bed, in no order.
func (b *Bed) Pods(ctx context.Context) ([]*Pod, error) {
	l, err := b.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("bed: list pods: %w", err)
	}
	var pods []*Pod
	for _, item := range l.Items {
		pod, err := b.Pod(ctx, item.Id)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// lookUpAddresses sets the addresses of a pod.
func (b *Bed) lookUpAddresses(ctx context.Context, p *Pod) error {
	s, err := b.Runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.ID})
	if err != nil {
		return fmt.Errorf("bed: address of pod %s: %w", p.ID, err)
	}
	p.setAddresses(s.Status)
	return nil
}

// setAddresses sets the addresses that the status says.
func (p *Pod) setAddresses(s *cri.PodSandboxStatus) {
	p.IP = s.GetNetwork().GetIp()
	for _, more := range s.GetNetwork().GetAdditionalIps() {
		p.IPv6 = more.Ip
	}
}

// How often a pod that containerd does not remove is removed again, and the pause in between.
const (
	removeAttempts = 50
	removePause    = 200 * time.Millisecond
)

// RemovePod ends the pod with that id, without grace, and removes it. As a kubelet does, it tries again: a shim
// may be too busy to answer containerd, and a container that has just ended may count as running.
func (b *Bed) RemovePod(ctx context.Context, id string) (err error) {
	for range removeAttempts {
		if err = b.removePod(ctx, id); err == nil {
			return nil
		}
		select {
		case <-time.After(removePause):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

func (b *Bed) removePod(ctx context.Context, id string) error {
	if _, err := b.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("bed: stop pod %s: %w", id, err)
	}
	if _, err := b.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("bed: remove pod %s: %w", id, err)
	}
	return nil
}

func (s PodSpec) withDefaults() PodSpec {
	if s.Namespace == "" {
		s.Namespace = "default"
	}
	if s.Handler == "" {
		s.Handler = Diapause
	}
	if s.UID == "" {
		s.UID = rand.Text()
	}
	if s.Made == nil {
		s.Made = func() error { return nil }
	}
	if len(s.Containers) == 0 {
		s.Containers = []Container{{Name: "busybox", Command: []string{"/bin/sleep", "infinity"}}}
	}
	s.Containers = slices.Clone(s.Containers)
	for i := range s.Containers {
		if s.Containers[i].Image == "" {
			s.Containers[i].Image = images.Busybox
		}
	}
	return s
}

func (b *Bed) sandboxConfig(spec PodSpec) *cri.PodSandboxConfig {
	uid := spec.UID
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: spec.Name, Namespace: spec.Namespace, Uid: uid, Attempt: spec.Attempt},
		Hostname:     spec.Name,
		LogDirectory: filepath.Join(logDir, "pods", spec.Namespace+"_"+spec.Name+"_"+uid),
		Labels: merge(spec.Labels, map[string]string{
			"io.kubernetes.pod.name": spec.Name, "io.kubernetes.pod.namespace": spec.Namespace, "io.kubernetes.pod.uid": uid,
		}),
		Annotations: spec.Annotations,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: podCgroup(b.CgroupParent, uid),
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
			},
		},
	}
}
