package checkpoint

import (
	"context"
	"errors"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/cri"
	"diapause.dev/runsc/lease"
)

// pauseLease is how long a sandbox stays paused without the agent. renewPause is how often the agent renews the lease.
// An agent or a containerd that restarts is usually back before the lease runs out, and continues its work.
const (
	pauseLease = 15 * time.Second
	renewPause = pauseLease / 5
)

// pause pauses the sandbox and renews the pause's lease until release is called or the process ends. With a shim
// without leases, the sandbox stays paused until it is resumed.
func (c *checkpoint) pause(life context.Context) (release func(), err error) {
	leased, err := c.cs.Runtime.PauseFor(life, c.pod.ID, c.rec.ID, pauseLease)
	if err != nil || !leased {
		return func() {}, err
	}
	ctx, cancel := context.WithCancel(life)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.keepPaused(ctx)
	}()
	return func() {
		cancel()
		<-done
	}, nil
}

// keepPaused renews the lease of the pause until ctx is done or the lease has run out. If it has run out, the sandbox
// runs, and this request can no longer stop it.
func (c *checkpoint) keepPaused(ctx context.Context) {
	tick := time.NewTicker(renewPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := c.renew(ctx)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("the pause of the sandbox was not renewed", "error", err)
		}
		if errors.Is(err, lease.ErrRanOut) {
			return
		}
	}
}

// renew gives up when the next renewal is due: a reply that takes longer may come too late.
func (c *checkpoint) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewPause)
	defer cancel()
	return c.cs.Runtime.RenewPause(ctx, c.pod.ID, c.rec.ID, pauseLease)
}

// killer ends a sandbox.
type killer func(context.Context, *cri.Pod) error

// killPaused returns the killer for a sandbox that was paused for a request and must not have run since.
func (cs *Checkpoints) killPaused(r *journal.Record) killer {
	return func(ctx context.Context, pod *cri.Pod) error { return cs.Runtime.KillPaused(ctx, pod, r.ID) }
}
