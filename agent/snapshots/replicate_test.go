package snapshots

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage/storagetest"
)

// replicateAll tries every snapshot that is in the spool alone. It reports whether nothing is left to retry.
func (p *Replicator) replicateAll(ctx context.Context) (done bool) {
	done = true
	for _, l := range p.lanes() {
		done = p.replicateLane(ctx, l) && done
	}
	return done
}

// TestReplicateHandsTheRecordOver: an unsettled record belongs to the goroutine that settles it. The race detector
// notices if the replication goes on using it.
func TestReplicateHandsTheRecordOver(t *testing.T) {
	a := newRig(t, nil)
	r := &journal.Record{
		ID: "r", UID: "u", Key: snapshot.Key{Namespace: "n", Name: "s"}, Stage: journal.StageSpooled,
		SandboxID: "sandbox",
	}
	put(t, a.stores.spool, r.Key)
	journaltest.Put(t, a.journal, r)
	if err := os.RemoveAll(a.journalDir); err != nil { // nothing can be written there
		t.Fatal(err)
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		for len(a.unsettled.List()) == 0 {
		}
		left := a.unsettled.List()[0]
		left.Timeline = append(left.Timeline, snapshot.Stage{Name: "settled"})
		a.unsettled.Remove(left)
	}()
	if err := a.replicator.Replicate(t.Context(), r, func(int64, int64) {}); err != nil {
		t.Error(err)
	}
	<-settled
	if len(a.told) != 1 || a.told[0].Stage != journal.StageReplicated {
		t.Errorf("the cluster was told %+v", a.told)
	}
}

// TestReplicatesBesides: while the snapshot n/a waits, others of its store are replicated. It is not forgotten.
func TestReplicatesBesides(t *testing.T) {
	one := snapshot.Key{Namespace: "n", Name: "a"}
	for name, c := range map[string]struct {
		other snapshot.Key
		// block makes the first snapshot wait. It returns how the wait ends.
		block func(t *testing.T, a *rig) (end func())
	}{
		"a checkpoint of its sandbox is under way": {snapshot.Key{Namespace: "n", Name: "b"}, blockSandbox},
		"a sweep is about to delete its packs":     {snapshot.Key{Namespace: "other", Name: "b"}, blockPacks},
		"the store denies it alone":                {snapshot.Key{Namespace: "n", Name: "b"}, blockManifest},
	} {
		t.Run(name, func(t *testing.T) {
			a := newReplicating(t, one, c.other)
			for i, k := range []snapshot.Key{one, c.other} {
				storagetest.Write(t, a.stores.spool, k, nil, storagetest.SmallImage(uint64(i+1)))
			}
			end := c.block(t, a)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- a.replicator.Run(ctx) }()
			a.waitFor(t, c.other, journal.StageReplicated)
			if s := a.last(one).Stage; s == journal.StageReplicated {
				t.Error("nothing kept the first one waiting")
			}
			end()
			a.replicator.Wake()
			a.waitFor(t, one, journal.StageReplicated)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func blockSandbox(t *testing.T, a *rig) (end func()) {
	unlock, err := a.replicator.sandboxes.Lock(t.Context(), "sandbox-a")
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}

func blockPacks(t *testing.T, a *rig) (end func()) {
	const notice = "n/sweeps/forged"
	b, names := a.own(t).Backend(), ""
	for _, pack := range packsOf(t, a, snapshot.Key{Namespace: "n", Name: "a"}) {
		names += strings.TrimPrefix(pack, "n/") + "\n"
	}
	if err := b.Replace(t.Context(), notice, []byte(names)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := b.Delete(t.Context(), notice); err != nil {
			t.Error(err)
		}
	}
}

func blockManifest(t *testing.T, a *rig) (end func()) {
	var open atomic.Bool
	a.refuse(t, func(object string) bool { return !open.Load() && object == "n/snapshots/a/manifest" })
	return func() { open.Store(true) }
}

// waitFor waits until the cluster is told that a snapshot has come that far.
func (a *rig) waitFor(t *testing.T, k snapshot.Key, stage journal.Stage) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for a.last(k).Stage != stage {
		select {
		case <-a.heard:
		case <-late:
			t.Fatalf("%s is %+v", k, a.last(k))
		}
	}
}

// TestLanes: a store has only a part of what is worked on at a time, and a lane that has failed waits for its turn.
func TestLanes(t *testing.T) {
	q := queue{busy: make(map[lane]bool)}
	var slow, others []lane
	for i := range maxLanes {
		slow = append(slow, lane{"slow", string(rune('a' + i))})
		others = append(others, lane{string(rune('a' + i)), "n"})
	}
	for range 2 {
		q.add(slow)
	}
	q.add(others)
	var taken []lane
	for l, ok := q.take(); ok; l, ok = q.take() {
		taken = append(taken, l)
	}
	want := append(slices.Clone(slow[:maxStoreLanes]), others[:maxLanes-maxStoreLanes]...)
	if !slices.Equal(taken, want) {
		t.Errorf("taken %v, want %v", taken, want)
	}
	q.add(slow[:1])
	q.end(outcome{slow[0], false})
	if l, ok := q.take(); l != slow[maxStoreLanes] || !ok {
		t.Errorf("then %v, %v", l, ok)
	}
	q.add(slow[1:2])
	q.end(outcome{slow[1], true})
	if q.end(outcome{taken[len(taken)-1], true}); !slices.Contains(q.due, slow[1]) || slices.Contains(q.due, slow[0]) {
		t.Errorf("due are %v", q.due)
	}
}
