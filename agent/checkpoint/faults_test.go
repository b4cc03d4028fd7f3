package checkpoint

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
)

// fault is what happens at a call of containerd.
type fault struct {
	after bool // the call was carried out
	kills bool // the agent dies; otherwise the call fails
	on    bool // all later calls fail, too, until lift is called
}

var faults = map[string]fault{
	"fails":                 {},
	"loses the answer":      {after: true},
	"fails from then on":    {on: true},
	"kills the agent":       {kills: true},
	"kills the agent after": {kills: true, after: true},
}

// set makes a fault hit the n-th call.
func (r *runtime) set(n int, f fault) {
	r.callsMu.Lock()
	defer r.callsMu.Unlock()
	r.at, r.after, r.kills, r.on, r.calls = n, f.after, f.kills, f.on, nil
}

// hit reports whether the n-th call has been made.
func (r *runtime) hit(n int) bool { return len(r.made()) >= n }

// owing returns what a killed agent can leave that takes calls of containerd to settle.
func owing() (all []left) {
	for _, sandbox := range []string{"gone", "runs", "paused", "paused without a lease", "paused by another"} {
		all = append(all, left{journal.StagePaused, true, false, "none", sandbox},
			left{journal.StagePaused, true, false, "whole", sandbox})
	}
	return append(all, left{journal.StageSpooled, true, false, "whole", "paused"})
}

// mostCalls is more calls than any request makes. It ends the loops over calls when go test skips some subtests.
const mostCalls = 50

// everyFault calls f for everything in owing, with each fault at each call of containerd. f reports whether there was
// such a call.
func everyFault(t *testing.T, f func(t *testing.T, l left, n int, f fault) bool) {
	for _, l := range owing() {
		for name, fault := range faults {
			t.Run(fmt.Sprintf("%s/%s", l, name), func(t *testing.T) {
				t.Parallel()
				more := true
				for n := 1; more && n <= mostCalls; n++ {
					t.Run(fmt.Sprint("call ", n), func(t *testing.T) { more = f(t, l, n, fault) })
				}
			})
		}
	}
}

// TestRecoverFaults: whichever call of containerd fails, and wherever the agent is killed while it recovers, the end is
// the same.
func TestRecoverFaults(t *testing.T) {
	everyFault(t, func(t *testing.T, l left, n int, f fault) bool {
		r := newRig(t)
		l.leave(r)
		r.next()
		r.runtime.set(n, f)
		survived := survive(func() { r.Recover(t.Context()) })
		if !r.runtime.hit(n) {
			return false
		}
		r.runtime.lift()
		if !survived {
			r.next()
			r.Recover(t.Context())
		}
		r.settled()
		r.isSound()
		if state, _ := r.sandbox.now(); state != l.want().sandbox {
			t.Errorf("the sandbox is %s, want %s", state, l.want().sandbox)
		}
		return true
	})
}

// TestRecoverFaultsAndTheLeaseRunsOut: a sandbox that has run meanwhile is not ended, and not reported as stopped.
func TestRecoverFaultsAndTheLeaseRunsOut(t *testing.T) {
	everyFault(t, func(t *testing.T, l left, n int, f fault) bool {
		r := newRig(t)
		l.leave(r)
		r.next()
		r.runtime.set(n, f)
		survived := survive(func() { r.Recover(t.Context()) })
		if !r.runtime.hit(n) {
			return false
		}
		r.sandbox.expire()
		r.runtime.lift()
		if !survived {
			r.next()
			r.Recover(t.Context())
		}
		r.settled()
		r.isSound()
		want := l.want().sandbox
		if l.sandbox == "paused" && !r.sandbox.isKilled() {
			want = running
		}
		if state, _ := r.sandbox.now(); state != want {
			t.Errorf("the sandbox is %s, want %s", state, want)
		}
		return true
	})
}

// TestRecoverJournalUnwritable: if the end of a request cannot be journaled, the agent tries again. It tells the
// cluster only when the end is journaled.
func TestRecoverJournalUnwritable(t *testing.T) {
	everyLeft(t, func(t *testing.T, l left) {
		r := newRig(t)
		l.leave(r)
		r.next()
		r.withoutJournal(func() {
			r.Recover(t.Context())
			for _, rec := range r.Unsettled.List() {
				r.settler.settleInTurn(t.Context(), rec)
			}
		})
		if state, _ := r.sandbox.now(); state == paused {
			t.Error("the sandbox waits for the journal")
		}
		if !r.Unsettled.Has(requestID) || len(r.told) > 0 {
			t.Errorf("still to be settled: %v; the cluster was told %+v", r.Unsettled.Has(requestID), r.told)
		}
		r.settled()
		r.check(l)
	})
}

// TestSettleLoop: the loop settles later what could not be settled at first.
func TestSettleLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := left{journal.StagePaused, true, false, "none", "paused without a lease"}
		l.leave(r)
		r.next()
		r.runtime.set(1, fault{on: true})
		r.Recover(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.SettleLoop(ctx) }()
		time.Sleep(10 * settleEvery)
		if state, _ := r.sandbox.now(); state != paused || !r.Unsettled.Has(requestID) {
			t.Errorf("the sandbox is %s while containerd does not answer", state)
		}
		r.runtime.lift()
		time.Sleep(2 * settleEvery)
		if r.Unsettled.Has(requestID) {
			t.Error("not settled")
		}
		r.check(l)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestSettleWaitsForItsTurn: a request is not settled while another one works on its sandbox.
func TestSettleWaitsForItsTurn(t *testing.T) {
	r := newRig(t)
	l := left{journal.StagePaused, true, false, "none", "paused"}
	rec := l.leave(r)
	r.Unsettled.Add(rec)
	unlock, err := r.Sandboxes.Lock(t.Context(), sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	r.settler.settleInTurn(t.Context(), r.Unsettled.List()[0])
	if state, _ := r.sandbox.now(); state != paused || !r.Unsettled.Has(requestID) {
		t.Errorf("settled while another one works on the sandbox: it is %s", state)
	}
	unlock()
	r.settled()
	r.check(l)
}

// TestSettlesBesides: a request is settled while another one cannot be, because its sandbox is being checkpointed, or
// does not answer.
func TestSettlesBesides(t *testing.T) {
	for _, locked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			l := left{journal.StagePaused, true, false, "none", "paused without a lease"}
			rec := l.leave(r)
			other := journaltest.Record(7, journal.StagePaused)
			other.SandboxID = "other"
			r.with(func(c *Config) { c.Runtime = deaf{r.runtime} })
			if locked {
				unlock, err := r.Sandboxes.Lock(t.Context(), other.SandboxID)
				if err != nil {
					t.Fatal(err)
				}
				defer unlock()
			}
			r.Unsettled.Add(other)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.SettleLoop(ctx) }()
			time.Sleep(2 * settleEvery) // until the loop is at the other one
			r.Unsettled.Add(rec)
			time.Sleep(2 * settleEvery)
			if r.Unsettled.Has(rec.ID) || !r.Unsettled.Has(other.ID) {
				t.Errorf("locked %v: left are %+v", locked, r.Unsettled.List())
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			r.check(l)
		})
	}
}

// deaf is a runtime that gets no answer of the sandbox "other".
type deaf struct{ Runtime }

func (d deaf) Paused(ctx context.Context, id string) (bool, error) {
	if id == "other" {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return d.Runtime.Paused(ctx, id)
}
