package bed

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// startContainers creates and starts the containers, one after the other, and
// enters them in the pod.
func (b *Bed) startContainers(ctx context.Context, pod *Pod, config *cri.PodSandboxConfig,
	containers []Container,
) error {
	for _, c := range containers {
		if err := b.startContainer(ctx, pod, config, c); err != nil {
			return err
		}
	}
	return nil
}

// StartContainer creates and starts one more container in a pod that was made of spec, or one of the same name once
// more. If it fails, what containerd has made of it stays, as if the kubelet had ended.
func (b *Bed) StartContainer(ctx context.Context, pod *Pod, spec PodSpec, c Container) error {
	c, err := b.CreateContainer(ctx, pod, spec, c)
	if err != nil {
		return err
	}
	return b.start(ctx, pod, c)
}

// CreateContainer creates one more container in a pod that was made of spec, or one of the same name once more, and
// returns it.
func (b *Bed) CreateContainer(ctx context.Context, pod *Pod, spec PodSpec, c Container) (Container, error) {
	spec.UID, spec.Containers = pod.UID, []Container{c}
	spec = spec.withDefaults()
	now, err := b.Pod(ctx, pod.ID)
	if err != nil {
		return Container{}, err
	}
	attempt := uint32(0)
	for _, x := range now.Containers {
		if x.Name == c.Name {
			attempt++
		}
	}
	return b.create(ctx, pod, b.sandboxConfig(spec), spec.Containers[0], attempt)
}

// BeginContainer starts a container that was created.
func (b *Bed) BeginContainer(ctx context.Context, pod *Pod, c Container) error {
	return b.start(ctx, pod, c)
}

func (b *Bed) startContainer(ctx context.Context, pod *Pod, config *cri.PodSandboxConfig, c Container) error {
	c, err := b.create(ctx, pod, config, c, config.Metadata.Attempt)
	if err != nil {
		return err
	}
	return b.start(ctx, pod, c)
}

func (b *Bed) create(ctx context.Context, pod *Pod, config *cri.PodSandboxConfig, c Container,
	attempt uint32,
) (Container, error) {
	whole := c.config(pod, config)
	whole.Metadata.Attempt = attempt
	r, err := b.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: pod.ID, Config: whole, SandboxConfig: config,
	})
	if err != nil {
		return Container{}, fmt.Errorf("bed: create container %s of pod %s/%s: %w", c.Name, pod.Namespace, pod.Name, err)
	}
	c.ID = r.ContainerId
	pod.Containers = append(pod.Containers, c)
	return c, nil
}

func (b *Bed) start(ctx context.Context, pod *Pod, c Container) error {
	if _, err := b.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ID}); err != nil {
		return fmt.Errorf("bed: start container %s of pod %s/%s: %w", c.Name, pod.Namespace, pod.Name, err)
	}
	return nil
}

func (c Container) config(pod *Pod, sandbox *cri.PodSandboxConfig) *cri.ContainerConfig {
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.Name},
		Image:    &cri.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image},
		Command:  c.Command,
		LogPath:  filepath.Join(c.Name, "0.log"),
		Tty:      c.TTY,
		Stdin:    c.Stdin,
		Labels:   merge(sandbox.Labels, map[string]string{"io.kubernetes.container.name": c.Name}),
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
			Capabilities:     &cri.Capability{AddCapabilities: c.Capabilities},
		}},
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		config.Envs = append(config.Envs, &cri.KeyValue{Key: name, Value: []byte(c.Env[name])})
	}
	for _, m := range c.Mounts {
		config.Mounts = append(config.Mounts, &cri.Mount{HostPath: m.Host, ContainerPath: m.Container, Readonly: m.ReadOnly})
	}
	return config
}

// Exec runs a command in the container with that id, and returns its standard
// output and exit status. The error is nil if the command ran, whatever its status;
// ctx's deadline holds inside the container too, to the second.
func (b *Bed) Exec(ctx context.Context, container string, command ...string) (string, int, error) {
	r, err := b.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: container, Cmd: command, Timeout: seconds(ctx)})
	if err != nil {
		return "", 0, fmt.Errorf("bed: exec %q in %s: %w", command, container, err)
	}
	return string(r.Stdout), int(r.ExitCode), nil
}

// seconds is the time to ctx's deadline, rounded up; 0, meaning no limit, if there is none.
func seconds(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(1, int64((time.Until(deadline)+time.Second-1)/time.Second))
}

// Logs returns what the container with that id has written on its standard
// output and error, in order.
func (b *Bed) Logs(ctx context.Context, container string) (string, error) {
	s, err := b.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: container})
	if err != nil {
		return "", fmt.Errorf("bed: log of %s: %w", container, err)
	}
	data, err := os.ReadFile(s.Status.LogPath)
	if err != nil {
		return "", fmt.Errorf("bed: log of %s: %w", container, err)
	}
	return plainLog(string(data)), nil
}

// plainLog takes the time, the stream and the tag off each line of a CRI log; the
// tag P says that the line goes on in the next.
func plainLog(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) < 4 {
			continue
		}
		b.WriteString(fields[3])
		if fields[2] != "P" {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// merge returns a map with what is in both; more wins.
func merge(base, more map[string]string) map[string]string {
	m := maps.Clone(base)
	if m == nil {
		m = map[string]string{}
	}
	maps.Copy(m, more)
	return m
}

// StopContainer asks the container with that id to end, and kills it after so many seconds. It returns once the
// container has ended for containerd. If a container ends just before it is killed, containerd answers before that: its
// task is gone, and its status is not written yet (stopContainerRetryOnConnectionClosed in internal/cri/server).
func (b *Bed) StopContainer(ctx context.Context, container string, timeout int64) error {
	if _, err := b.Runtime.StopContainer(ctx,
		&cri.StopContainerRequest{ContainerId: container, Timeout: timeout}); err != nil {
		return fmt.Errorf("bed: stop container %s: %w", container, err)
	}
	return Until(ctx, func() error {
		_, err := b.ExitCode(ctx, container)
		if grpcstatus.Code(err) == codes.NotFound { // it has been removed since
			return nil
		}
		return err
	})
}

// ExitCode returns the exit code of the container with that id, or an error if it has not exited.
func (b *Bed) ExitCode(ctx context.Context, container string) (int32, error) {
	s, err := b.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: container})
	if err != nil {
		return 0, fmt.Errorf("bed: exit code of %s: %w", container, err)
	}
	if s.Status.State != cri.ContainerState_CONTAINER_EXITED {
		return 0, fmt.Errorf("bed: container %s is %s", container, s.Status.State)
	}
	return s.Status.ExitCode, nil
}
