package snapshots

import (
	"context"
	"sync"
	"testing"

	"diapause.dev/agent/backlog"
	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/lifetime"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// rig is a node with a spool and a store of its own. It does nothing by itself.
type rig struct {
	stores     *Stores
	readers    *Readers
	journal    *journal.Journal
	journalDir string
	backlog    *backlog.Backlog
	unsettled  *journal.Unsettled
	catalog    *Catalog
	replicator *Replicator
	evictor    *Evictor
	life       *lifetime.Life
	asleep     func(k snapshot.Key, uid string) (pod string) // says which pod needs a snapshot; nil: none

	mu   sync.Mutex
	told []journal.Request // what the cluster was told about requests
	// heard is a signal that the cluster was told something.
	heard chan struct{}
}

// newRig returns a rig in a cluster. Without a cluster, cluster is nil.
func newRig(t *testing.T, cluster Cluster) *rig {
	t.Helper()
	return newRigWith(t, cluster, Options{})
}

// newRigWith returns a rig with options for its stores. It sets their places.
func newRigWith(t *testing.T, cluster Cluster, o Options) *rig {
	t.Helper()
	bell := NewBell()
	o.StateDir, o.Store, o.Opened, o.Logger = t.TempDir(), "dir:"+madeStore(t), bell.Ring, journaltest.Quiet
	o.Cluster = cluster
	stores, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	a := &rig{
		stores: stores, backlog: backlog.New(func(map[string]int) {}), unsettled: journal.NewUnsettled(),
		life: lifetime.New(t.Context()), heard: make(chan struct{}, 1),
	}
	a.journal, a.journalDir = journaltest.New(t)
	a.begin(bell)
	t.Cleanup(func() {
		a.life.End(errkind.ErrStopping)
		a.life.Wait()
		if err := stores.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// begin makes the parts that do not outlive an agent.
func (a *rig) begin(bell Bell) {
	a.readers = OpenReaders(a.stores, a.life)
	a.catalog = NewCatalog(NewRemover(a.stores, a.readers, a.needed), a.journal, a.backlog, a.changed, bell.Ring)
	a.replicator = NewReplicator(a.catalog, a.unsettled, keylock.New(), bell)
	a.evictor = NewEvictor(a.catalog)
}

// needed returns the pod that needs a snapshot, or "".
func (a *rig) needed(k snapshot.Key, uid string) (pod string) {
	if a.asleep == nil {
		return ""
	}
	return a.asleep(k, uid)
}

func (a *rig) changed(r *journal.Record) {
	q := r.Request()
	q.Waiting = a.backlog.Reason(r.ID)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = append(a.told, q)
	select {
	case a.heard <- struct{}{}:
	default:
	}
}

// last returns the last request of a snapshot that the cluster was told about.
func (a *rig) last(k snapshot.Key) (last journal.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.told {
		if r.Key == k {
			last = r
		}
	}
	return last
}

// count returns how often the cluster was told about a snapshot.
func (a *rig) count(k snapshot.Key) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.told {
		if r.Key == k {
			n++
		}
	}
	return n
}

// newReplicating returns a rig whose journal has a request for each key. By their stage their snapshots are in the
// spool; the caller writes them.
func newReplicating(t *testing.T, keys ...snapshot.Key) *rig {
	t.Helper()
	a := newRig(t, nil)
	for i, k := range keys {
		r := journaltest.Record(i, journal.StageSpooled)
		r.Key, r.UID, r.SandboxID = k, "u-"+k.Name, "sandbox-"+k.Name
		journaltest.Put(t, a.journal, r)
	}
	return a
}

// own returns the rig's own store.
func (a *rig) own(t *testing.T) *storage.Store {
	t.Helper()
	s, err := a.stores.own.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// spoolKeys returns the snapshots in the spool.
func (a *rig) spoolKeys(ctx context.Context) (keys []storage.Key, err error) {
	err = a.stores.spool.List(ctx, "", func(e storage.Listed) error {
		keys = append(keys, e.Key)
		return nil
	})
	return keys, err
}
