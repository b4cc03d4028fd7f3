package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/cri"
	"diapause.dev/runsc/lease"
)

// pauseLease is how long a sandbox stays paused without the agent. renewPause is how often the agent renews the lease.
// An agent or a containerd that restarts is usually back before the lease runs out, and continues its work.
const (
	pauseLease = 15 * time.Second
	renewPause = pauseLease / 5
)

// pauser pauses the sandbox of a request, keeps it paused, and resumes it.
type pauser struct {
	runtime Runtime
	control *control
	pod     *cri.Pod
	request string
	log     *slog.Logger
}

// check refuses a sandbox that somebody else has paused: the agent may not resume it.
func (p *pauser) check(life context.Context) error {
	paused, err := p.runtime.Paused(life, p.pod.ID)
	if err == nil && paused {
		err = fmt.Errorf("pod %s: %w: it is paused, and not by the agent: resume it first", p.pod, errkind.ErrInvalid)
	}
	return err
}

// pause pauses the sandbox and renews the pause's lease until release is called or the process ends. With a shim
// without leases, the sandbox stays paused until it is resumed.
func (p *pauser) pause(life context.Context) (release func(), err error) {
	var leased bool
	err = p.within(life, "pause", func(ctx context.Context) (err error) {
		leased, err = p.runtime.PauseFor(ctx, p.pod.ID, p.request, pauseLease)
		return err
	})
	if err != nil || !leased {
		return func() {}, err
	}
	ctx, cancel := context.WithCancel(life)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.keepPaused(ctx)
	}()
	return func() {
		cancel()
		<-done
	}, nil
}

// shimTime bounds how long a shim may take to watch or to pause its sandbox. The request holds a share of the node's
// memory meanwhile, for which other pods may wait.
const shimTime = 2 * time.Minute

// within has the shim of the sandbox do something, by f, for at most shimTime.
func (p *pauser) within(life context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(life, shimTime)
	defer cancel()
	err := f(ctx)
	if err != nil && ctx.Err() != nil && life.Err() == nil {
		return fmt.Errorf("pod %s: its shim was to %s it, and has not answered within %v: %w", p.pod, what, shimTime, err)
	}
	return err
}

// keepPaused renews the lease of the pause until ctx is done or the lease has run out. If it has run out, the sandbox
// runs, and this request can no longer stop it.
func (p *pauser) keepPaused(ctx context.Context) {
	tick := time.NewTicker(renewPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := p.renew(ctx)
		if err != nil && ctx.Err() == nil {
			p.log.Warn("the pause of the sandbox was not renewed", "error", err)
		}
		if errors.Is(err, lease.ErrRanOut) {
			return
		}
	}
}

// renew gives up when the next renewal is due: a reply that takes longer may come too late.
func (p *pauser) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewPause)
	defer cancel()
	return p.runtime.RenewPause(ctx, p.pod.ID, p.request, pauseLease)
}

// resume undoes a pause. It does nothing for a sandbox that is gone or not paused.
func (p *pauser) resume() error {
	ctx, cancel := context.WithTimeout(context.Background(), resumeTime) // even if the request was given up
	defer cancel()
	return p.control.unpause(ctx, p.pod.ID, p.request)
}
