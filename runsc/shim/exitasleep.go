package shim

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"diapause.dev/runsc/sleep"
)

// exiting is how a pod ends in its sleep.
type exiting struct {
	*podSleep
	wake *sharedWake
}

// end carries out the order to end the pod in its sleep.
func (z *exiting) end(ctx context.Context, o sleep.Order) error {
	ended, err := z.exitAsleep(ctx, z.c.bundle.id, o.Status)
	if err == nil && !ended && o.Asleep {
		return fmt.Errorf("%w: it was woken meanwhile", sleep.ErrUnfit)
	}
	return err
}

// exitAsleep ends a pod in its sleep: all its containers exit with a status. It reports whether container id has ended
// so. If not, the pod has been woken meanwhile.
func (z *exiting) exitAsleep(ctx context.Context, id string, status int) (ended bool, err error) {
	give, err := z.takeToEnd(ctx, status)
	if err != nil {
		return false, err
	}
	defer give()
	if !z.state.Answered() {
		return z.ended(id), nil
	}
	slog.Info("the sandbox ends in its sleep", "sandbox", z.c.bundle.id, "status", status)
	z.discardReady(context.WithoutCancel(ctx))
	err = z.exit(ctx, status)
	z.leave()
	go z.c.agent.giveUp(ctx, z.c.bundle.id, "the pod ended in its sleep")
	if z.ended(id) {
		z.warn(err, "end its containers")
		err = nil
	}
	return true, err
}

// breakPause is how often a wake that is to fail is broken again: its sandbox may not have had a process yet.
const breakPause = 100 * time.Millisecond

// takeToEnd takes the turn for who ends the pod with a status. A wake may take long: a store may not answer. The end of
// a pod that is killed does not wait for that: after exitLimit its sandbox is ended wherever it is, and so the wake
// fails.
func (z *exiting) takeToEnd(ctx context.Context, status int) (give func(), err error) {
	if status == statusKilled {
		over := make(chan struct{})
		defer close(over)
		go func() {
			for pause := exitLimit; ; pause = breakPause {
				select {
				case <-over:
					return
				case <-time.After(pause):
					z.warn(z.wake.breakOff(z.c.bundle.kill), "end it while it wakes")
				}
			}
		}()
	}
	return z.state.Take(ctx)
}
