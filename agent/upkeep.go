package agent

import (
	"context"
	"time"

	"diapause.dev/runsc/use"
)

const (
	// upkeepEvery is how often the node's disk is tidied.
	upkeepEvery = 10 * time.Minute
	// requestGrace is the least time that a request's directory is kept: containerd reports a sandbox only once it has
	// started.
	requestGrace = 10 * time.Minute
)

// upkeepLoop keeps the node's disk within its bounds until ctx is done.
func (a *Agent) upkeepLoop(ctx context.Context) error {
	tick := time.NewTicker(upkeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		a.evictor.Tidy(ctx)
		a.clean(ctx)
		a.collector.RemoveEarlier(ctx)
		if err := a.forgetLineage(ctx); err != nil {
			a.log.Warn("lineage not tidied", "error", err)
		}
	}
}

// forgetLineage forgets sandboxes that containerd no longer knows.
func (a *Agent) forgetLineage(ctx context.Context) error {
	here, err := a.cri.IDs(ctx)
	if err == nil {
		a.lineage.Keep(here)
	}
	return err
}

// cleanUsed removes what shims have said of sandboxes that containerd no longer knows.
func (a *Agent) cleanUsed(ctx context.Context) {
	here, err := a.cri.IDs(ctx)
	if err == nil {
		err = use.Clean(a.usedDir(), here)
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("files about the use of pods are not removed; it is retried later", "error", err)
	}
}

// clean removes what requests and pods have left and nobody needs.
func (a *Agent) clean(ctx context.Context) {
	a.cleanRequests(ctx)
	a.checkpoints.CleanMarkers(ctx)
	a.reminders.Clean(ctx, a.restores.Preparing)
	a.lives.Clean(ctx)
	a.cleanUsed(ctx)
}

// cleanRequests removes the directories of requests for which nobody waits any longer.
func (a *Agent) cleanRequests(ctx context.Context) {
	old, err := a.requests.OlderThan(requestGrace)
	if err != nil {
		a.log.Warn("request directories unreadable", "error", err)
		return
	}
	for _, request := range old {
		if a.wanted(ctx, request) {
			continue
		}
		a.restores.Abandon(request)
		if err := a.requests.Remove(request); err != nil {
			a.log.Warn("request directory not removed", "request", request, "error", err)
		}
	}
}

// wanted reports whether a request's directory must stay.
func (a *Agent) wanted(ctx context.Context, request string) bool {
	wanted, known := a.restores.Wanted(ctx, request)
	if !known {
		return a.checkpoints.Wanted(ctx, request)
	}
	return wanted
}
