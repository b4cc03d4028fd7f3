package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/keylock"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// listener is a cluster that notes what it is told of requests.
type listener struct {
	Cluster
	mu   sync.Mutex
	told []journal.Request
}

func (l *listener) Changed(r journal.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, r)
}

// last returns what it was told last of a snapshot.
func (l *listener) last(k snapshot.Key) (last journal.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.told {
		if r.Key == k {
			last = r
		}
	}
	return last
}

// count returns how often it was told of a snapshot.
func (l *listener) count(k snapshot.Key) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.told {
		if r.Key == k {
			n++
		}
	}
	return n
}

func (*listener) Stores(context.Context) ([]string, error) { return nil, nil }

// newReplicating returns an agent of a cluster with a request for each key, whose snapshot is in the spool.
func newReplicating(t *testing.T, keys ...snapshot.Key) (*Agent, *listener) {
	t.Helper()
	l := &listener{}
	a := newStoring(t, l)
	a.turns, a.unsettled = keylock.New(), journal.NewUnsettled()
	for i, k := range keys {
		r := journaltest.Record(i, journal.StageSpooled)
		r.Key, r.UID = k, "u-"+k.Name
		journaltest.Put(t, a.journal, r)
	}
	return a, l
}

// path returns where an object of the spool lies.
func (a *Agent) path(object string) string { return pathIn(a.spool, object) }

// pathIn returns where an object of a store lies that is a directory.
func pathIn(s *storage.Store, object string) string {
	return filepath.Join(strings.TrimPrefix(s.Backend().Location(), "dir:"), filepath.FromSlash(object))
}

// flip changes a bit of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestReplicationEnds: a replication that can never succeed ends, and the cluster learns why.
func TestReplicationEnds(t *testing.T) {
	k := snapshot.Key{Namespace: "n", Name: "s"}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, a *Agent)
		want  string // in the reason
		local bool   // afterwards
	}{
		"name taken": {func(t *testing.T, a *Agent) {
			own, err := a.stores.own.get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			storagetest.Write(t, own, k, nil, storagetest.SmallImage(2))
		}, "another snapshot", true},
		"removed": {func(t *testing.T, a *Agent) {
			if err := a.spool.Remove(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}, "removed from the spool", false},
		"pack damaged": {func(t *testing.T, a *Agent) { flip(t, a.path(packsOf(t, a, k)[0])) }, "/packs/", false},
		"pack gone": {func(t *testing.T, a *Agent) {
			if err := os.Remove(a.path(packsOf(t, a, k)[0])); err != nil {
				t.Fatal(err)
			}
		}, "/packs/", false},
		"manifest damaged": {
			func(t *testing.T, a *Agent) { flip(t, a.path("n/snapshots/s/manifest")) },
			"/snapshots/s/manifest", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, cluster := newReplicating(t, k)
			storagetest.Write(t, a.spool, k, nil, storagetest.SmallImage(1))
			c.spoil(t, a)
			if !a.replicateAll(t.Context()) {
				t.Error("it is to be tried again")
			}
			r := journaltest.Read(t, a.journal, a.cfg.StateDir+"/journal")[0]
			if r.Stage != journal.StageFailed || !strings.Contains(r.Error, c.want) {
				t.Errorf("the journal says %s: %q", r.Stage, r.Error)
			}
			if told := cluster.last(k); told.Stage != journal.StageFailed || told.Error != r.Error {
				t.Errorf("the cluster was told %+v", told)
			}
			if local, err := a.HasLocal(t.Context(), k); err != nil || local != c.local {
				t.Errorf("restorable on this node: %v, %v", local, err)
			}
		})
	}
}

// packsOf returns the names of a snapshot's packs.
func packsOf(t *testing.T, a *Agent, k snapshot.Key) (names []string) {
	t.Helper()
	m, err := a.spool.Manifest(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Packs {
		names = append(names, k.Namespace+"/packs/"+p.ID.String())
	}
	return names
}

// TestDamageEndsWithItsLineage: what shares a damaged pack fails too, and the next checkpoint is stored whole, even if
// its parent is one that the replication has not come to yet.
func TestDamageEndsWithItsLineage(t *testing.T) {
	one, two, three := snapshot.Key{Namespace: "n", Name: "a"}, snapshot.Key{Namespace: "n", Name: "b"},
		snapshot.Key{Namespace: "n", Name: "c"}
	a, cluster := newReplicating(t, one)
	image := storagetest.SmallImage(1)
	m := storagetest.Write(t, a.spool, one, nil, image)
	child := storagetest.Write(t, a.spool, two, m, image)
	if child.Packs[0].ID != m.Packs[0].ID {
		t.Fatal("the child has packs of its own")
	}
	flip(t, a.path(packsOf(t, a, one)[0]))
	a.replicateAll(t.Context())
	storagetest.Write(t, a.spool, three, child, image)
	for i, k := range []snapshot.Key{two, three} {
		r := journaltest.Record(i+1, journal.StageSpooled)
		r.Key = k
		journaltest.Put(t, a.journal, r)
	}
	if !a.replicateAll(t.Context()) {
		t.Error("something is to be tried again")
	}
	if s := cluster.last(two).Stage; s != journal.StageFailed {
		t.Errorf("the child is %s", s)
	}
	if r := cluster.last(three); r.Stage != journal.StageReplicated {
		t.Errorf("the next one is %s: %s", r.Stage, r.Error)
	}
}

// TestDamageThatPasses: one read that was wrong is not the end of a snapshot.
func TestDamageThatPasses(t *testing.T) {
	k := snapshot.Key{Namespace: "n", Name: "s"}
	a, cluster := newReplicating(t, k)
	storagetest.Write(t, a.spool, k, nil, storagetest.SmallImage(1))
	if why := a.hopeless(t.Context(), k, errors.Join(storage.ErrSource, storage.ErrCorrupt)); why != "" {
		t.Errorf("it is over: %s", why)
	}
	if !a.replicateAll(t.Context()) || cluster.last(k).Stage != journal.StageReplicated {
		t.Errorf("it is %+v", cluster.last(k))
	}
}

// TestSettleDamaged: a request whose snapshot can no longer be read is not settled again and again: it has failed.
func TestSettleDamaged(t *testing.T) {
	k := snapshot.Key{Namespace: "n", Name: "s"}
	a, cluster := newReplicating(t, k)
	storagetest.Write(t, a.spool, k, nil, storagetest.SmallImage(1))
	flip(t, a.path("n/snapshots/s/manifest"))
	r := journaltest.Read(t, a.journal, a.cfg.StateDir+"/journal")[0]
	if !a.settle(t.Context(), r) {
		t.Error("it is tried again")
	}
	if told := cluster.last(k); told.Stage != journal.StageFailed || !strings.Contains(told.Error, "manifest") {
		t.Errorf("the cluster was told %+v", told)
	}
}
