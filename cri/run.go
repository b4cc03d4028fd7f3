package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/api/snapshot"
	"github.com/containerd/errdefs"
	"github.com/google/uuid"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// undoTimeout bounds the removal of a pod that could not be started whole.
const undoTimeout = 30 * time.Second

// RunOptions say how a pod made from a record differs from the recorded one.
type RunOptions struct {
	Name      string // of the new pod
	Namespace string // empty: the recorded one
	// Handler is the runtime handler; empty: the recorded one.
	Handler string
	// Annotations are added to the recorded ones, and win over them.
	Annotations map[string]string
	// Progress, if set, is told of each step before it is made. It is called from one goroutine.
	Progress func(stage string)
}

// RunRestored makes a new pod from a recorded configuration, the way a kubelet does: sandbox,
// containers, start of each in order. It has a UID and a log directory of its own. Whether it is
// restored or starts anew is for its annotations to say. On failure nothing of it stays, and the
// error gives the reason.
func (c *Client) RunRestored(ctx context.Context, rec snapshot.Pod, o RunOptions) (*Pod, error) {
	pod, err := c.runRestored(ctx, rec, o)
	if err != nil {
		return nil, fmt.Errorf("start pod %.80q: %w", o.Name, err)
	}
	return pod, nil
}

func (c *Client) runRestored(ctx context.Context, rec snapshot.Pod, o RunOptions) (pod *Pod, err error) {
	p, err := planOf(rec, identity{
		name: o.Name, namespace: o.Namespace, uid: uuid.NewString(),
		logRoot: c.logRoot, annotations: o.Annotations,
	})
	if err != nil {
		return nil, err
	}
	if o.Handler != "" {
		p.handler = o.Handler
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	id, err := c.run(ctx, p, o.Progress)
	if err == nil {
		pod, err = c.Get(ctx, id)
	}
	if err != nil {
		if undone := c.undo(ctx, id, p.sandbox.LogDirectory); undone != nil {
			err = fmt.Errorf("%w; and then: %w", err, undone)
		}
		return nil, err
	}
	return pod, nil
}

// run carries a plan out. It returns the id of the sandbox once there is one, with or without an
// error.
func (c *Client) run(ctx context.Context, p *plan, progress func(string)) (string, error) {
	if err := makeLogDirectories(p); err != nil {
		return "", err
	}
	progress("sandbox")
	s, err := c.runtime.RunPodSandbox(ctx, &criapi.RunPodSandboxRequest{Config: p.sandbox, RuntimeHandler: p.handler})
	if err != nil {
		return "", fmt.Errorf("run sandbox: %w", native(err))
	}
	id := s.GetPodSandboxId()
	var containers []string
	for _, config := range p.containers {
		progress("create " + config.Metadata.Name)
		r, err := c.runtime.CreateContainer(ctx,
			&criapi.CreateContainerRequest{PodSandboxId: id, Config: config, SandboxConfig: p.sandbox})
		if err != nil {
			return id, fmt.Errorf("create container %s: %w", config.Metadata.Name, native(err))
		}
		containers = append(containers, r.GetContainerId())
	}
	for i, x := range containers {
		name := p.containers[i].Metadata.Name
		progress("start " + name)
		if _, err := c.runtime.StartContainer(ctx, &criapi.StartContainerRequest{ContainerId: x}); err != nil {
			return id, fmt.Errorf("start container %s: %w", name, native(err))
		}
	}
	return id, nil
}

func makeLogDirectories(p *plan) error {
	for _, config := range p.containers {
		dir := filepath.Dir(filepath.Join(p.sandbox.LogDirectory, config.LogPath))
		if config.LogPath == "" {
			dir = p.sandbox.LogDirectory
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make log directory: %w", err)
		}
	}
	return nil
}

// undo removes what a failed start left; it works after ctx has ended, in a time of its own.
func (c *Client) undo(ctx context.Context, id, logs string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	var err error
	if id != "" {
		err = c.RemovePod(ctx, id)
	}
	return errors.Join(err, os.RemoveAll(logs))
}

// What containerd asks a shim must be answered within two seconds. A shim that waits for runsc, which is
// busy with another container of the pod, is late; a kubelet tries again then.
const (
	removeAttempts = 10
	removePause    = time.Second
)

// RemovePod stops a pod and removes it. A pod that is gone already is no error.
func (c *Client) RemovePod(ctx context.Context, id string) (err error) {
	for range removeAttempts {
		if err = c.removePod(ctx, id); !errdefs.IsDeadlineExceeded(err) {
			break
		}
		select {
		case <-time.After(removePause):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

func (c *Client) removePod(ctx context.Context, id string) error {
	if _, err := c.runtime.StopPodSandbox(ctx, &criapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		if err := native(err); !isGone(err) {
			return fmt.Errorf("stop pod %s: %w", id, err)
		}
	}
	if _, err := c.runtime.RemovePodSandbox(ctx, &criapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		if err := native(err); !isGone(err) {
			return fmt.Errorf("remove pod %s: %w", id, err)
		}
	}
	return nil
}
