package checkpoint

import (
	"context"
	"time"

	"diapause.dev/agent/journal"
)

// settleEvery is how often unsettled requests are retried.
const settleEvery = time.Second

// SettleLoop settles the unsettled requests, again and again, until ctx is done. The next agent finds the rest in the
// journal.
func (cs *Checkpoints) SettleLoop(ctx context.Context) error {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, r := range cs.Unsettled.List() {
			cs.settleInTurn(ctx, r)
		}
	}
}

// settleInTurn settles a request while no other request works on its sandbox.
func (cs *Checkpoints) settleInTurn(ctx context.Context, r *journal.Record) {
	release, err := cs.Sandboxes.Lock(ctx, r.SandboxID)
	if err != nil {
		return // ctx is done
	}
	defer release()
	if cs.settle(ctx, r) {
		cs.Unsettled.Remove(r)
		cs.Replicator.Wake()
	}
}
