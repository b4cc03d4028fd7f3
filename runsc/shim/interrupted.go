package shim

import (
	"context"
	"errors"
	"fmt"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

// If containerd ends while it starts a container of a pod that is restored, the start fails, and the sandbox is ended.
// To the next containerd the container would be one that ran and exited, so that a pod with the restart policy Never
// would have failed. It never ran. So the shim removes it, and says meanwhile that it knows no such container: then
// containerd takes it for one that was never started (internal/cri/server, loadContainer), and the agent sees to it
// that the kubelet restores the pod in another sandbox (agent/restore/interrupted.go). The sandbox is ended by lost, in
// containers.go.

// interrupted reports whether containerd has ended while it started a container of a pod that is not restored yet. The
// caller holds c.mu.
func (c *containers) interrupted(s *starting) bool {
	return errors.Is(s.asked.Err(), context.Canceled) && c.incomplete()
}

// discardUnasked removes a container whose start was interrupted. Of another container it removes nothing.
func (c *containers) discardUnasked(ctx context.Context, id string) {
	c.mu.Lock()
	unasked := c.unasked[id]
	c.mu.Unlock()
	if unasked {
		if err := c.discard(ctx, id); err != nil {
			log.L.WithError(err).Warnf("container %s, whose start was interrupted, is not removed", id)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unasked, id)
}

// State returns the state of a container, or of a process in it. A container whose start was interrupted is not found.
func (c *containers) State(ctx context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	resp, err := c.TaskServiceExt.State(ctx, r)
	if err != nil || r.ExecID != "" || resp.Status != tasktypes.Status_STOPPED {
		return resp, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.starting[r.ID]; c.unasked[r.ID] || s != nil && c.interrupted(s) {
		return nil, fmt.Errorf("container %s: its start was interrupted: %w", r.ID, errdefs.ErrNotFound)
	}
	return resp, nil
}
