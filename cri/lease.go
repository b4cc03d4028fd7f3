package cri

import (
	"context"
	"fmt"
	"time"

	"diapause.dev/runsc/lease"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
)

// PauseFor stops all tasks of the pod's sandbox for as long as holder renews the lease, which its shim
// keeps: nobody needs to resume the sandbox after holder is gone. It reports whether the shim knows
// leases; an older one keeps the sandbox paused until Resume.
func (c *Client) PauseFor(ctx context.Context, podID, holder string, d time.Duration) (leased bool, err error) {
	err = c.askLease(ctx, podID, lease.Request{Verb: lease.Pause, Holder: holder, For: d})
	if errdefs.IsInvalidArgument(err) {
		return false, c.Pause(ctx, podID)
	}
	return true, err
}

// RenewPause has a pause by PauseFor last longer. Its error is of kind lease.ErrRanOut if the sandbox runs.
func (c *Client) RenewPause(ctx context.Context, podID, holder string, d time.Duration) error {
	return c.askLease(ctx, podID, lease.Request{Verb: lease.Renew, Holder: holder, For: d})
}

// EndPause resumes a sandbox that holder has paused by PauseFor. Its error is of kind lease.ErrRanOut if
// holder has not, or no longer, and of kind ErrInvalidArgument if the shim knows no leases.
func (c *Client) EndPause(ctx context.Context, podID, holder string) error {
	return c.askLease(ctx, podID, lease.Request{Verb: lease.Resume, Holder: holder})
}

// KillPaused is Kill for a sandbox that holder has paused by PauseFor, if it has not run since. If it has,
// the error is of kind lease.ErrRanOut, and the sandbox runs on. A sandbox whose shim knows no leases is killed if
// it is paused.
func (c *Client) KillPaused(ctx context.Context, pod *Pod, holder string) error {
	err := c.askLease(ctx, pod.ID, lease.Request{Verb: lease.Kill, Holder: holder})
	if errdefs.IsInvalidArgument(err) {
		return c.killIfPaused(ctx, pod)
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("kill pod %s: %w", pod, err)
	}
	if err := c.waitEnded(ctx, pod.ID); err != nil {
		return fmt.Errorf("kill pod %s: %w", pod, err)
	}
	return nil
}

func (c *Client) killIfPaused(ctx context.Context, pod *Pod) error {
	paused, err := c.Paused(ctx, pod.ID)
	if err == nil && !paused {
		err = lease.ErrRanOut
	}
	if err != nil {
		return fmt.Errorf("kill pod %s: %w", pod, err)
	}
	return c.Kill(ctx, pod)
}

// askLease passes a request to the shim of a pod's sandbox.
func (c *Client) askLease(ctx context.Context, podID string, r lease.Request) error {
	_, err := c.tasks.Update(c.scoped(ctx), &tasksapi.UpdateTaskRequest{
		ContainerID: podID, Annotations: map[string]string{lease.Annotation: r.String()},
	})
	err = native(err)
	if errdefs.IsFailedPrecondition(err) {
		err = fmt.Errorf("%w: %w", lease.ErrRanOut, err)
	}
	if err != nil {
		return fmt.Errorf("%s sandbox %s: %w", r.Verb, podID, err)
	}
	return nil
}
