package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"diapause.dev/agent/budget"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
)

// isRefused checks that a checkpoint was refused by a budget before anything was done to the sandbox.
func (r *rig) isRefused(err error, argument string) {
	r.t.Helper()
	if !errors.Is(err, errkind.ErrBudget) || !strings.Contains(err.Error(), argument) {
		r.t.Errorf("%v, want a refusal that names %s", err, argument)
	}
	for _, call := range r.runtime.made() {
		if call == "pause" || call == "checkpoint" {
			r.t.Errorf("it was refused after a call of %s", call)
		}
	}
	r.isSound()
}

// TestHostileMemoryInUse: a checkpoint waits before its pause while others hold all memory, and says so. If its time is
// over, it is refused. Once there is room, it is made.
func TestHostileMemoryInUse(t *testing.T) {
	everySaving(t, func(t *testing.T, s saving) {
		r := newRig(t)
		others, err := r.memory.Take(t.Context(), "other", 1<<30, func() {})
		if err != nil {
			t.Fatal(err)
		}
		over := errors.New("its time is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		o := Options{Target: sandboxID, Stop: s.stop, Scope: s.scope, Name: "saved"}
		o.Progress = func(stage string, _, total int64) {
			if stage == "memory" && total > 0 {
				cancel(over)
			}
		}
		_, err = r.Checkpoint(ctx, r.Life.Context(), o)
		r.isRefused(err, "--checkpoint-memory")
		if !errors.Is(err, over) {
			t.Errorf("%v", err)
		}
		o.Progress = func(stage string, _, total int64) {
			if stage == "memory" {
				others.Return()
			}
		}
		found, err := r.Checkpoint(t.Context(), r.Life.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(found.Timeline, func(s snapshot.Stage) bool { return s.Name == "memory" }) {
			t.Errorf("the wait is not in the timeline: %v", found.Timeline)
		}
		r.isSound()
		r.leavesAll()
	})
}

// leavesAll checks that no checkpoint holds any memory.
func (r *rig) leavesAll() {
	r.t.Helper()
	s, err := r.memory.Take(r.t.Context(), "probe", 1<<30, func() { r.t.Fatal("memory is still held") })
	if err != nil {
		r.t.Error(err)
	}
	s.Return()
}

// TestHostileLargerThanBudget: what can never fit into the memory for all checkpoints is refused at once.
func TestHostileLargerThanBudget(t *testing.T) {
	everySaving(t, func(t *testing.T, s saving) {
		r := newRig(t)
		r.memory = budget.NewMemory(1<<20, func(int64, int) {})
		r.next()
		_, _, err := r.save(s, Options{})
		r.isRefused(err, "--checkpoint-memory")
	})
}

// TestHostileDiskBelowFloor: a checkpoint is refused while the spool's disk has too little room. It holds nothing
// then.
func TestHostileDiskBelowFloor(t *testing.T) {
	everySaving(t, func(t *testing.T, s saving) {
		r := newRig(t)
		r.disk = budget.NewDisk(r.dir, 100) // all of it must stay free
		r.next()
		_, _, err := r.save(s, Options{})
		r.isRefused(err, "--disk-floor=100")
		r.leavesAll()
	})
}

// TestHostileBacklogFull: while the store is away, checkpoints are made until the bound is reached. From then on they
// are refused, by the next agent, too. What was made is kept. Once the store is back, it gets all of it, and
// checkpoints go on.
func TestHostileBacklogFull(t *testing.T) {
	const most = 6 // of which one namespace has half
	r := newRig(t)
	r.storeAway, r.backlog = true, most
	r.next()
	save := func(i int) error {
		o := Options{Target: sandboxID, Name: fmt.Sprint("saved-", i)}
		_, err := r.Checkpoint(t.Context(), r.Life.Context(), o)
		return err
	}
	for i := range most / 2 {
		if err := save(i); !errors.Is(err, errkind.ErrNotReplicated) {
			t.Fatal(err)
		}
	}
	r.next()
	r.isRefused(save(most), "--backlog-count")

	r.storeAway = false
	r.next()
	for _, rec := range r.Journal.Where(func(rec *journal.Record) bool { return rec.Stage == journal.StageSpooled }) {
		if rec.Stored == 0 {
			t.Errorf("the journal does not say what %s takes", rec.Key)
		}
		if err := r.Replicator.Replicate(t.Context(), rec, func(int64, int64) {}); err != nil {
			t.Error(err)
		}
	}
	if err := save(most + 1); err != nil {
		t.Error(err)
	}
	for i := range most / 2 {
		found, err := r.Catalog.Find(t.Context(), snapshot.Key{Namespace: "default", Name: fmt.Sprint("saved-", i)})
		if err != nil || !found.Replicated {
			t.Errorf("%+v, %v", found, err)
		}
	}
	r.leavesAll()
}

// TestWaitingOfEarlierAgents: a snapshot counts as large as it is, even if its record does not say how large that is.
func TestWaitingOfEarlierAgents(t *testing.T) {
	r := newRig(t)
	k := snapshot.Key{Namespace: "default", Name: "old"}
	r.put(k, "uid")
	if err := r.Journal.Put(&journal.Record{ID: "1", UID: "uid", Key: k, Stage: journal.StageSpooled}); err != nil {
		t.Fatal(err)
	}
	got := Waiting(r.Journal, r.Stores.Spool())()
	if len(got) != 1 || got[0].Namespace != "default" || got[0].Bytes == 0 {
		t.Errorf("%+v", got)
	}
}
