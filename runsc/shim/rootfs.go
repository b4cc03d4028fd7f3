package shim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/core/mount"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// createRestored creates the sandbox container of a pod whose root file systems are restored. Runsc must know this
// when it creates the sandbox. The pod's containers then start as usual, each with the saved files of the container
// with its name.
func (s *sandbox) createRestored(ctx context.Context, r *task.CreateTaskRequest, o order,
	path string,
) (*task.CreateTaskResponse, error) {
	slog.Info("the sandbox's root file systems are to be restored", "sandbox", r.ID, "request", o.Request)
	if err := s.bundle.order(o); err != nil {
		return nil, err
	}
	created, err := s.create(ctx, r,
		func(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
			return s.TaskServiceExt.CreateWithFSRestore(ctx, &extension.CreateWithFSRestoreRequest{
				Create: r, Conf: extension.FSRestoreConfig{ImagePath: path},
			})
		})
	if err != nil {
		err = s.progress.failRestore(ctx, r.ID, err)
		s.progress.pending.of(r.ID).Wait() // there is no container, and so no removal, to wait for them
	}
	return created, err
}

// createAgain creates a sandbox a second time, because the agent answered only after the first. It uses the original
// spec: gVisor has changed the spec since.
func (s *sandbox) createAgain(ctx context.Context, r *task.CreateTaskRequest, spec []byte,
	a answer,
) (*task.CreateTaskResponse, error) {
	if err := withdraw(ctx, s.containers, r); err != nil {
		return nil, err
	}
	if err := os.WriteFile(specPath(r.Bundle), spec, 0o600); err != nil {
		return nil, fmt.Errorf("write OCI spec: %w", err)
	}
	return s.createDecided(ctx, r, a)
}

// withdraw has runsc remove a created sandbox container that is created again. GVisor's shim is not asked to: when it
// deletes the only container that it has, it gives up what it serves terminals with, and the pod's containers could
// have none.
func withdraw(ctx context.Context, c *containers, r *task.CreateTaskRequest) error {
	ctx, cancel := context.WithTimeout(ctx, discardLimit)
	defer cancel()
	err := c.force(ctx, r.ID)
	if err == nil {
		err = mount.UnmountAll(filepath.Join(r.Bundle, "rootfs"), 0)
	}
	if err != nil {
		return fmt.Errorf("remove sandbox %s, to create it as the agent wants it: %w", r.ID, err)
	}
	return nil
}
