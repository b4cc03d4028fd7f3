package cri

import (
	"context"
	"fmt"
	"time"

	"diapause.dev/runsc/lease"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
)

// PauseFor pauses the pod's sandbox for as long as holder renews the lease. The shim keeps the lease, so that the
// sandbox resumes by itself after holder is gone. Leased reports whether the shim knows leases. With an older shim
// the sandbox stays paused until Resume.
func (c *Client) PauseFor(ctx context.Context, podID, holder string, d time.Duration) (leased bool, err error) {
	err = c.askLease(ctx, podID, lease.Request{Verb: lease.Pause, Holder: holder, For: d})
	if errdefs.IsInvalidArgument(err) {
		return false, c.Pause(ctx, podID)
	}
	return true, err
}

// RenewPause extends a pause by PauseFor. If the sandbox runs, the error is of kind lease.ErrRanOut.
func (c *Client) RenewPause(ctx context.Context, podID, holder string, d time.Duration) error {
	return c.askLease(ctx, podID, lease.Request{Verb: lease.Renew, Holder: holder, For: d})
}

// EndPause resumes a sandbox that holder has paused by PauseFor. If holder does not hold the lease, the error is of
// kind lease.ErrRanOut. If the shim knows no leases, it is of kind ErrInvalidArgument.
func (c *Client) EndPause(ctx context.Context, podID, holder string) error {
	return c.askLease(ctx, podID, lease.Request{Verb: lease.Resume, Holder: holder})
}

// KillPaused kills a sandbox that holder has paused by PauseFor, if it has not run since. If it has, the error is of
// kind lease.ErrRanOut, and the sandbox runs on. If the shim knows no leases, KillPaused kills the sandbox if it is
// paused now.
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
