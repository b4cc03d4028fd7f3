package agent

import (
	"context"
	"maps"
	"time"

	"diapause.dev/storage"
)

const (
	// upkeepEvery is how often the node's disk is tidied.
	upkeepEvery = 10 * time.Minute
	// sweepGrace is how old a pack must be before a sweep may delete it: a checkpoint or a
	// replication writes its packs first and names them later.
	sweepGrace = time.Hour
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
		if err := a.shrinkCache(ctx); err != nil {
			a.log.Warn("cache not shrunk", "error", err)
		}
		if _, err := a.spool.Sweep(ctx, storage.SweepOptions{Grace: sweepGrace}); err != nil {
			a.log.Warn("spool not swept", "error", err)
		}
		if err := a.forgetDeleted(ctx); err != nil {
			a.log.Warn("the cache may hold blocks of deleted snapshots", "error", err)
		}
		a.cleanRequests(ctx)
		a.cleanMarkers(ctx)
		if err := a.forgetLineage(ctx); err != nil {
			a.log.Warn("lineage not tidied", "error", err)
		}
	}
}

// forgetLineage forgets sandboxes that containerd knows no more.
func (a *Agent) forgetLineage(ctx context.Context) error {
	here, err := a.cri.IDs(ctx)
	if err != nil {
		return err
	}
	a.lineageMu.Lock()
	defer a.lineageMu.Unlock()
	maps.DeleteFunc(a.lineage, func(d descent, _ storage.Key) bool { return !here[d.sandbox] })
	return nil
}
