package snapshots

import (
	"os"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
)

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
