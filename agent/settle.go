package agent

import (
	"context"
	"time"

	"diapause.dev/agent/journal"
)

// settleEvery is how often what is owed is tried again.
const settleEvery = time.Second

// settleLoop settles what is owed, again and again, until ctx is done. What is left then is in the
// journal, for the next agent.
func (a *Agent) settleLoop(ctx context.Context) error {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, r := range a.unsettled.List() {
			a.settleInTurn(ctx, r)
		}
	}
}

// settleInTurn settles a request while no other one works on its sandbox.
func (a *Agent) settleInTurn(ctx context.Context, r *journal.Record) {
	release, err := a.turns.Lock(ctx, r.SandboxID)
	if err != nil {
		return // ctx is done
	}
	defer release()
	if a.settle(ctx, r) {
		a.unsettled.Remove(r)
		a.wakeReplicator()
	}
}
