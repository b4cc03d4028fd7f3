package cri

import (
	"context"
	"fmt"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
)

// Checkpoint has the shim of the pod's sandbox save the whole sandbox to imagePath, an absolute
// directory, and leave it running. It returns when all of the image has been handed over. The
// error holds runsc's own words.
//
// It asks the task service itself: the checkpoint of containerd's client would pause the task
// first. With an image path containerd 2 keeps nothing of it in its content store. Containerd 1 keeps
// a file that the shim makes, and the container's spec, until it collects its garbage.
func (c *Client) Checkpoint(ctx context.Context, podID, imagePath string) error {
	opts, err := typeurl.MarshalAnyToProto(&options.CheckpointOptions{ImagePath: imagePath, Exit: false})
	if err != nil {
		return fmt.Errorf("checkpoint sandbox %s: encode options: %w", podID, err)
	}
	_, err = c.tasks.Checkpoint(c.scoped(ctx), &tasksapi.CheckpointTaskRequest{ContainerID: podID, Options: opts})
	if err := native(err); err != nil && !errdefs.IsAlreadyExists(err) { // the spec, of a checkpoint before
		return fmt.Errorf("checkpoint sandbox %s: %w", podID, err)
	}
	return nil
}

// Pause stops all tasks of the pod's sandbox until Resume.
func (c *Client) Pause(ctx context.Context, podID string) error {
	if _, err := c.tasks.Pause(c.scoped(ctx), &tasksapi.PauseTaskRequest{ContainerID: podID}); err != nil {
		return fmt.Errorf("pause sandbox %s: %w", podID, native(err))
	}
	return nil
}

// Resume lets a paused sandbox run on.
func (c *Client) Resume(ctx context.Context, podID string) error {
	if _, err := c.tasks.Resume(c.scoped(ctx), &tasksapi.ResumeTaskRequest{ContainerID: podID}); err != nil {
		return fmt.Errorf("resume sandbox %s: %w", podID, native(err))
	}
	return nil
}

// Paused reports whether the pod's sandbox is paused. Its error is of kind ErrNotFound when the
// sandbox is gone.
func (c *Client) Paused(ctx context.Context, podID string) (bool, error) {
	r, err := c.tasks.Get(c.scoped(ctx), &tasksapi.GetRequest{ContainerID: podID})
	if err != nil {
		return false, fmt.Errorf("state of sandbox %s: %w", podID, native(err))
	}
	s := r.GetProcess().GetStatus()
	return s == task.Status_PAUSED || s == task.Status_PAUSING, nil
}
