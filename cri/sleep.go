package cri

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/runsc/sleep"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
)

// errKnowsNoSleep is the error for a pod whose shim is of an earlier version.
var errKnowsNoSleep = errors.New("its shim is of an earlier version and knows no sleep: make the pod anew")

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
