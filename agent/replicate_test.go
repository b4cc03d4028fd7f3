package agent

import (
	"os"
	"testing"

	"diapause.dev/api/snapshot"
)

// changes is a cluster that is told of the steps of requests.
type changes struct {
	Cluster
	told []Request
}

func (c *changes) Changed(r Request) { c.told = append(c.told, r) }

// TestReplicateHandsTheRecordOver: what settleLoop has been given is its own. The race detector sees
// whether the replication goes on using it.
func TestReplicateHandsTheRecordOver(t *testing.T) {
	cluster := &changes{}
	a := newStoring(t, cluster)
	a.debts, a.turns = newDebts(), newTurns()
	r := &record{
		ID: "r", UID: "u", Key: snapshot.Key{Namespace: "n", Name: "s"}, Stage: StageSpooled,
		SandboxID: "sandbox",
	}
	put(t, a.spool, r.Key)
	mustPut(t, a.journal, r)
	if err := os.RemoveAll(a.journal.dir); err != nil { // nothing can be written there
		t.Fatal(err)
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		for len(a.debts.list()) == 0 {
		}
		a.settleInTurn(t.Context(), a.debts.list()[0])
	}()
	if err := a.replicate(t.Context(), r, func(int64, int64) {}); err != nil {
		t.Error(err)
	}
	<-settled
	if len(cluster.told) != 1 || cluster.told[0].Stage != StageReplicated {
		t.Errorf("the cluster was told %+v", cluster.told)
	}
}
