package snapshots

import (
	"strings"
	"sync/atomic"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// TestReplicationDenied: if a store refuses the credentials, the replicator retries seldom. The cluster and doctor hear
// why. Once the store accepts the credentials, everything is replicated.
func TestReplicationDenied(t *testing.T) {
	keys := []snapshot.Key{{Namespace: "n", Name: "a"}, {Namespace: "n", Name: "b"}}
	a := newReplicating(t, keys...)
	for i, k := range keys {
		storagetest.Write(t, a.stores.spool, k, nil, storagetest.SmallImage(uint64(i+1)))
	}
	var refusing atomic.Bool
	var refused atomic.Int32
	a.refuse(t, func(string) bool {
		if refusing.Load() {
			refused.Add(1)
		}
		return refusing.Load()
	})
	refusing.Store(true)
	for range 2 {
		before := refused.Load()
		if a.replicator.replicateAll(t.Context()) || refused.Load() == before {
			t.Error("nothing is left")
		}
	}
	for _, k := range keys {
		r := a.last(k)
		if r.Stage != journal.StageSpooled || !strings.Contains(r.Waiting, "access denied") || a.count(k) != 1 {
			t.Errorf("the cluster was told %d times, and last %+v", a.count(k), r)
		}
		f, err := a.catalog.Find(t.Context(), k)
		if err != nil || !f.OnNode || !strings.Contains(f.Problem, "access denied") {
			t.Errorf("%s is shown as %+v, %v", k, f, err)
		}
	}
	if _, err := a.backlog.Check(); err == nil || !strings.Contains(err.Error(), "2 on this node only (denied)") ||
		!a.backlog.Denied() {
		t.Errorf("doctor says %v", err)
	}
	refusing.Store(false)
	if !a.replicator.replicateAll(t.Context()) {
		t.Error("something is left")
	}
	for _, k := range keys {
		if r := a.last(k); r.Stage != journal.StageReplicated || r.Waiting != "" {
			t.Errorf("the cluster was told %+v", r)
		}
	}
	if detail, err := a.backlog.Check(); err != nil || detail == "" || a.backlog.Denied() {
		t.Errorf("doctor says %q, %v", detail, err)
	}
}

// refuse gives the agent an own store that denies the creation of an object for which refused returns true.
func (a *rig) refuse(t *testing.T, refused func(object string) bool) {
	t.Helper()
	b, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	faulty := fault.New(b, func(op fault.Op, name string) (f fault.Fault) {
		if op == fault.Create && refused(name) {
			f.Before = storage.ErrDenied
		}
		return f
	})
	a.stores.own.store, err = storage.Open(t.Context(), faulty, storage.Options{Logger: journaltest.Quiet})
	if err != nil {
		t.Fatal(err)
	}
}
