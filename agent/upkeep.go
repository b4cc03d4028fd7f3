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
		a.cleanRequests(ctx)
		a.cleanMarkers(ctx)
		if err := a.forgetLineage(ctx); err != nil {
			a.log.Warn("lineage not tidied", "error", err)
		}
	}
}

// forgetLineage forgets sandboxes that containerd knows no more.
func (a *Agent) forgetLineage(ctx context.Context) error {
	pods, err := a.cri.Pods(ctx)
	if err != nil {
		return err
	}
	here := make(map[string]bool)
	for _, p := range pods {
		here[p.ID] = true
	}
	a.lineageMu.Lock()
	defer a.lineageMu.Unlock()
	maps.DeleteFunc(a.lineage, func(d descent, _ storage.Key) bool { return !here[d.sandbox] })
	return nil
}

// shrinkCache removes replicated snapshots from the node, the longest unused first, until what
// stays is within the bound. What is not in the store yet, or being restored from, stays.
func (a *Agent) shrinkCache(ctx context.Context) error {
	recs, err := a.journal.records(a.log)
	if err != nil {
		return err
	}
	var total int64
	size := make(map[storage.Key]int64)
	keys, err := a.spoolKeys(ctx)
	if err != nil {
		return err
	}
	for _, k := range keys {
		m, err := a.spool.Manifest(ctx, k)
		if err != nil {
			a.log.Warn("manifest in the spool unreadable", "snapshot", k.String(), "error", err)
			continue
		}
		size[k] = m.Stats().StoredBytes
		total += size[k]
	}
	for _, r := range recs {
		n, here := size[r.Key]
		if total <= a.cfg.CacheSize-a.cache.bytes() || !here || r.Stage != StageReplicated || a.restores.using(r.Key) {
			continue
		}
		if err := a.spool.Remove(ctx, r.Key); err != nil {
			return err
		}
		total -= n
		delete(size, r.Key)
	}
	return nil
}
