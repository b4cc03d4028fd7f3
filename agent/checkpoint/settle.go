package checkpoint

import (
	"context"
	"time"

	"diapause.dev/agent/journal"
)

// settleEvery is how often what is owed is tried again.
const settleEvery = time.Second

// SettleLoop settles what is owed, again and again, until ctx is done. What is left then is in the
// journal, for the next agent.
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

// settleInTurn settles a request while no other one works on its sandbox.
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
