package cri

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/runsc/refusal"
	"diapause.dev/runsc/sleep"
	"github.com/containerd/errdefs"
)

// errKnowsNoSleep is the error for a pod whose shim is of an earlier version.
var errKnowsNoSleep = errors.New("its shim is of an earlier version and knows no sleep: create the pod again")

// SleepOrders gives orders about the sleep of pods.
type SleepOrders struct {
	tasks  *Tasks
	killer *Killer
}

// OrderSleep gives an order about a pod's sleep to the shim of its sandbox, and returns when it is carried out. If the
// pod cannot sleep, the error is of kind sleep.ErrUnfit; if somebody uses it by exec, of kind sleep.ErrInUse; if a
// packet came for it while it fell asleep, of kind sleep.ErrTraffic.
func (s *SleepOrders) OrderSleep(ctx context.Context, podID string, o sleep.Order) error {
	err := s.tasks.annotate(ctx, podID, sleep.Annotation, o.String())
	if err = orderError(sleep.Brief(err)); err != nil {
		return fmt.Errorf("%s pod %s: %w", o.Verb, podID, err)
	}
	return nil
}

// EndAsleep ends a pod in its sleep: all its containers exit with a status. It waits until containerd knows. A pod that
// is awake runs on, and the error is of kind sleep.ErrUnfit. A shim of an earlier version says nothing of that; then
// EndAsleep waits in vain until ctx is done.
func (s *SleepOrders) EndAsleep(ctx context.Context, pod *Pod, status int) error {
	err := s.OrderSleep(ctx, pod.ID, sleep.Order{Verb: sleep.End, Status: status, Asleep: true})
	if err == nil {
		err = s.killer.waitEnded(ctx, pod.ID)
	}
	if err != nil {
		return fmt.Errorf("end pod %s in its sleep: %w", pod, err)
	}
	return nil
}

// orderError gives what containerd says of an order the kind that the shim has meant.
func orderError(err error) error {
	if errdefs.IsInvalidArgument(err) {
		return fmt.Errorf("%w: %w", sleep.ErrUnfit, errKnowsNoSleep)
	}
	return refusal.Sleep.Read(err)
}
