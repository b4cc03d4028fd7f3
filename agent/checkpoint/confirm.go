package checkpoint

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"diapause.dev/api/snapshot"
)

// A pod that was stopped may be deleted and started again on another node, by whoever owns it. That node restores only
// what the cluster has confirmed, so otherwise it would restore an older snapshot. So no sandbox is stopped before its
// snapshot is confirmed. The cluster learns of a snapshot when its checkpoint begins, so this takes no time from the
// pause.

const (
	// confirmTime is how long a checkpoint that is to stop its sandbox waits for the confirmation, before the pause.
	confirmTime = 150 * time.Second
	// savedTime is how long a sandbox that has saved itself is not stopped for want of the confirmation. What it does
	// meanwhile is lost when it is stopped.
	savedTime = 15 * time.Second
)

// confirmStop waits until the cluster has confirmed the snapshot, if its sandbox is to be stopped. After an error,
// nothing has been done to the sandbox.
func (c *checkpoint) confirmStop(ctx context.Context) error {
	if !c.o.Stop || c.cs.Cluster == nil {
		return nil
	}
	if c.o.Ending {
		return c.confirmation().ending(ctx)
	}
	if err := c.confirmation().within(ctx, confirmTime); err != nil {
		return fmt.Errorf("pod %s is stopped only once its snapshot is confirmed; it was not saved, and %s: %w", c.pod,
			c.stays(), err)
	}
	return nil
}

// confirmation is what the cluster has to confirm: the snapshot of a pod.
type confirmation struct {
	cluster  Cluster
	pod      snapshot.PodRef
	key      snapshot.Key
	progress func(stage string, done, total int64)
	watch    *stopwatch
	log      *slog.Logger
}

// confirmation returns what the cluster has to confirm of this request.
func (c *checkpoint) confirmation() *confirmation {
	return &confirmation{
		cluster: c.cs.Cluster, pod: c.ref(), key: c.rec.Key, progress: c.o.Progress, watch: c.watch, log: c.log,
	}
}

// endingTime is how long the save of a pod that is being ended waits for the confirmation, and at most half of the time
// that is left.
const endingTime = 5 * time.Second

// ending waits a little until the cluster has confirmed the snapshot of a pod that is being ended. Without the
// confirmation the pod is saved all the same: it would end anyway, and the cluster may confirm the snapshot later.
func (f *confirmation) ending(ctx context.Context) error {
	most := endingTime
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)/2)
	}
	if err := f.within(ctx, most); err != nil {
		f.log.Warn("the pod is being ended and is saved before its snapshot is confirmed", "error", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// within waits until the cluster has confirmed the snapshot, for at most that time.
func (f *confirmation) within(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	f.progress("confirm", 0, 0)
	err := f.cluster.Confirmed(ctx, f.pod, f.key)
	f.watch.lap("confirm")
	return err
}
