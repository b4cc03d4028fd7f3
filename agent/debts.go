package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// settleEvery is how often what is owed is tried again.
const settleEvery = time.Second

// debts are requests that are over while something of theirs is still to be done: a sandbox that
// could not be resumed, a journal that could not be written.
type debts struct {
	mu   sync.Mutex
	recs map[string]*record // by request
}

func newDebts() *debts { return &debts{recs: make(map[string]*record)} }

// add takes a copy of a record, so that who hands it over may go on reading its own.
func (d *debts) add(r *record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recs[r.ID] = r.clone()
}

// list returns all records; those not settled yet belong to settleLoop.
func (d *debts) list() []*record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.recs))
}

func (d *debts) remove(r *record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recs[r.ID] == r {
		delete(d.recs, r.ID)
	}
}

// has reports whether something is owed for a request.
func (d *debts) has(request string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.recs[request] != nil
}

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
		for _, r := range a.debts.list() {
			a.settleInTurn(ctx, r)
		}
	}
}

// settleInTurn settles a request while no other one works on its sandbox.
func (a *Agent) settleInTurn(ctx context.Context, r *record) {
	release, err := a.turns.take(ctx, r.SandboxID)
	if err != nil {
		return // ctx is done
	}
	defer release()
	if a.settle(ctx, r) {
		a.debts.remove(r)
		a.wakeReplicator()
	}
}
