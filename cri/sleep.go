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
	err = sleep.Brief(native(err))
	switch {
	case err == nil:
		return nil
	case errdefs.IsInvalidArgument(err):
		err = fmt.Errorf("%w: %w", sleep.ErrUnfit, errKnowsNoSleep)
	case errdefs.IsFailedPrecondition(err):
		err = fmt.Errorf("%w: %w", sleep.ErrUnfit, err)
	case errdefs.IsResourceExhausted(err):
		err = fmt.Errorf("%w: %w", sleep.ErrInUse, err)
	case errdefs.IsUnavailable(err):
		err = fmt.Errorf("%w: %w", sleep.ErrTraffic, err)
	}
	return fmt.Errorf("%s pod %s: %w", o.Verb, podID, err)
}
