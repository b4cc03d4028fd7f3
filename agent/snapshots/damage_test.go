package snapshots

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// path returns the path of an object in the spool.
func (a *rig) path(object string) string { return pathIn(a.stores.spool, object) }

// pathIn returns the path of an object in a store that is a directory.
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
		spoil func(t *testing.T, a *rig)
		want  string // in the reason
		local bool   // afterwards
	}{
		"name taken": {func(t *testing.T, a *rig) {
			own, err := a.stores.own.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			storagetest.Write(t, own, k, nil, storagetest.SmallImage(2))
		}, "another snapshot", true},
		"removed": {func(t *testing.T, a *rig) {
			if err := a.stores.spool.Remove(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}, "removed from the spool", false},
		"pack damaged": {func(t *testing.T, a *rig) { flip(t, a.path(packsOf(t, a, k)[0])) }, "/packs/", false},
		"pack gone": {func(t *testing.T, a *rig) {
			if err := os.Remove(a.path(packsOf(t, a, k)[0])); err != nil {
				t.Fatal(err)
			}
		}, "/packs/", false},
		"manifest damaged": {
			func(t *testing.T, a *rig) { flip(t, a.path("n/snapshots/s/manifest")) },
			"/snapshots/s/manifest", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newReplicating(t, k)
			storagetest.Write(t, a.stores.spool, k, nil, storagetest.SmallImage(1))
			c.spoil(t, a)
			if !a.replicator.replicateAll(t.Context()) {
				t.Error("it is to be tried again")
			}
			r := journaltest.Read(t, a.journal, a.journalDir)[0]
			if r.Stage != journal.StageFailed || !strings.Contains(r.Error, c.want) {
				t.Errorf("the journal says %s: %q", r.Stage, r.Error)
			}
			if told := a.last(k); told.Stage != journal.StageFailed || told.Error != r.Error {
				t.Errorf("the cluster was told %+v", told)
			}
			if local, err := a.catalog.HasLocal(t.Context(), k); err != nil || local != c.local {
				t.Errorf("restorable on this node: %v, %v", local, err)
			}
		})
	}
}

// packsOf returns the names of a snapshot's packs.
func packsOf(t *testing.T, a *rig, k snapshot.Key) (names []string) {
	t.Helper()
	m, err := a.stores.spool.Manifest(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Packs {
		names = append(names, k.Namespace+"/packs/"+p.ID.String())
	}
	return names
}

// TestDamageEndsWithItsLineage: a snapshot that shares a damaged pack fails, too. The next checkpoint is stored whole,
// even if the replicator has not come to its parent yet.
func TestDamageEndsWithItsLineage(t *testing.T) {
	one, two, three := snapshot.Key{Namespace: "n", Name: "a"}, snapshot.Key{Namespace: "n", Name: "b"},
		snapshot.Key{Namespace: "n", Name: "c"}
	a := newReplicating(t, one)
	image := storagetest.SmallImage(1)
	m := storagetest.Write(t, a.stores.spool, one, nil, image)
	child := storagetest.Write(t, a.stores.spool, two, m, image)
	if child.Packs[0].ID != m.Packs[0].ID {
		t.Fatal("the child has packs of its own")
	}
	flip(t, a.path(packsOf(t, a, one)[0]))
	a.replicator.replicateAll(t.Context())
	storagetest.Write(t, a.stores.spool, three, child, image)
	for i, k := range []snapshot.Key{two, three} {
		r := journaltest.Record(i+1, journal.StageSpooled)
		r.Key = k
		journaltest.Put(t, a.journal, r)
	}
	if !a.replicator.replicateAll(t.Context()) {
		t.Error("something is to be tried again")
	}
	if s := a.last(two).Stage; s != journal.StageFailed {
		t.Errorf("the child is %s", s)
	}
	if r := a.last(three); r.Stage != journal.StageReplicated {
		t.Errorf("the next one is %s: %s", r.Stage, r.Error)
	}
}

// TestDamageThatPasses: a single wrong read does not end the replication of a snapshot.
func TestDamageThatPasses(t *testing.T) {
	k := snapshot.Key{Namespace: "n", Name: "s"}
	a := newReplicating(t, k)
	storagetest.Write(t, a.stores.spool, k, nil, storagetest.SmallImage(1))
	if why := a.catalog.damage.hopeless(t.Context(), k, errors.Join(storage.ErrSource, storage.ErrCorrupt)); why != "" {
		t.Errorf("it is over: %s", why)
	}
	if !a.replicator.replicateAll(t.Context()) || a.last(k).Stage != journal.StageReplicated {
		t.Errorf("it is %+v", a.last(k))
	}
}
