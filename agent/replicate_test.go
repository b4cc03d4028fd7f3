package agent

import (
	"os"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/keylock"
	"diapause.dev/api/snapshot"
)

// changes is a cluster that is told of the steps of requests.
type changes struct {
	Cluster
	told []journal.Request
}

func (c *changes) Changed(r journal.Request) { c.told = append(c.told, r) }

// TestReplicateHandsTheRecordOver: what settleLoop has been given is its own. The race detector sees
// whether the replication goes on using it.
func TestReplicateHandsTheRecordOver(t *testing.T) {
	cluster := &changes{}
	a := newStoring(t, cluster)
	a.unsettled, a.turns = journal.NewUnsettled(), keylock.New()
	r := &journal.Record{
		ID: "r", UID: "u", Key: snapshot.Key{Namespace: "n", Name: "s"}, Stage: journal.StageSpooled,
		SandboxID: "sandbox",
	}
	put(t, a.spool, r.Key)
	journaltest.Put(t, a.journal, r)
	if err := os.RemoveAll(a.cfg.StateDir + "/journal"); err != nil { // nothing can be written there
		t.Fatal(err)
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		for len(a.unsettled.List()) == 0 {
		}
		a.settleInTurn(t.Context(), a.unsettled.List()[0])
	}()
	if err := a.replicate(t.Context(), r, func(int64, int64) {}); err != nil {
		t.Error(err)
	}
	<-settled
	if len(cluster.told) != 1 || cluster.told[0].Stage != journal.StageReplicated {
		t.Errorf("the cluster was told %+v", cluster.told)
	}
}
