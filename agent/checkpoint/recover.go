package checkpoint

import (
	"context"

	"diapause.dev/agent/journal"
)

// Recover finishes what an earlier agent left: it resumes or ends the sandboxes that were paused, and ends interrupted
// requests. It runs before the local service answers. If settle fails for a request, SettleLoop tries again.
func (cs *Checkpoints) Recover(ctx context.Context) {
	for _, r := range cs.Journal.Where(func(r *journal.Record) bool { return !r.Ended() }) {
		if !cs.settle(ctx, r) {
			cs.Unsettled.Add(r)
		}
	}
	cs.resumeLost(ctx)
}
