package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/runsc/sleep"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errKnowsNoSleep is the error for a pod whose shim is of an earlier version.
var errKnowsNoSleep = errors.New("its shim is of an earlier version and knows no sleep: create the pod again")

// OrderSleep gives an order about a pod's sleep to the shim of its sandbox, and returns when it is carried out. If the
// pod cannot sleep, the error is of kind sleep.ErrUnfit; if somebody uses it by exec, of kind sleep.ErrInUse; if a
// packet came for it while it fell asleep, of kind sleep.ErrTraffic.
func (c *Client) OrderSleep(ctx context.Context, podID string, o sleep.Order) error {
	_, err := c.tasks.Update(c.scoped(ctx), &tasksapi.UpdateTaskRequest{
		ContainerID: podID, Annotations: map[string]string{sleep.Annotation: o.String()},
	})
	if err = orderError(sleep.Brief(native(err))); err != nil {
		return fmt.Errorf("%s pod %s: %w", o.Verb, podID, err)
	}
	return nil
}

// EndAsleep ends a pod in its sleep: all its containers exit with a status. It waits until containerd knows. A pod that
// is awake runs on, and the error is of kind sleep.ErrUnfit. A shim of an earlier version says nothing of that; then
// EndAsleep waits in vain until ctx is done.
func (c *Client) EndAsleep(ctx context.Context, pod *Pod, status int) error {
	err := c.OrderSleep(ctx, pod.ID, sleep.Order{Verb: sleep.End, Status: status, Asleep: true})
	if err == nil {
		err = c.waitEnded(ctx, pod.ID)
	}
	if err != nil {
		return fmt.Errorf("end pod %s in its sleep: %w", pod, err)
	}
	return nil
}

// orderError gives what containerd says of an order the kind that the shim has meant (runsc/shim, sleepKind).
func orderError(err error) error {
	switch {
	case errdefs.IsInvalidArgument(err):
		return fmt.Errorf("%w: %w", sleep.ErrUnfit, errKnowsNoSleep)
	case errdefs.IsFailedPrecondition(err):
		return fmt.Errorf("%w: %w", sleep.ErrUnfit, err)
	case errdefs.IsResourceExhausted(err):
		return fmt.Errorf("%w: %w", sleep.ErrInUse, err)
	case errdefs.IsOutOfRange(err):
		return fmt.Errorf("%w: %w", sleep.ErrTraffic, err)
	}
	return err
}

// backOff is a little more than the longest time for which a kubelet waits until it starts a container again.
const backOff = 6 * time.Minute

// Restless returns an error of kind sleep.ErrInUse if a container of a pod is about to be started: it was created, or
// it failed so lately that the kubelet may be waiting to start it again.
func (c *Client) Restless(ctx context.Context, podID string) error {
	pods, err := c.list(ctx, filterID(podID))
	if err == nil && len(pods) != 1 {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("containers of pod %s: %w", podID, err)
	}
	pod := pods[0]
	for _, x := range pod.Containers {
		if x.State == StateCreated {
			return fmt.Errorf("pod %s: %w: container %s is being started", pod, sleep.ErrInUse, x.Name)
		}
	}
	for _, x := range lastEnded(pod.Containers, nil) {
		r, err := c.runtime.ContainerStatus(ctx, &criapi.ContainerStatusRequest{ContainerId: x.ID})
		if err = native(err); isGone(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("pod %s: container %s: %w", pod, x.Name, err)
		}
		ago := time.Since(time.Unix(0, r.GetStatus().GetFinishedAt()))
		if r.GetStatus().GetExitCode() != 0 && ago < backOff {
			return fmt.Errorf("pod %s: %w: container %s has failed, with status %d, %v ago: it may be started again",
				pod, sleep.ErrInUse, x.Name, r.GetStatus().GetExitCode(), ago.Round(time.Second))
		}
	}
	return nil
}
