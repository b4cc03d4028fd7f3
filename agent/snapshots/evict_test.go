package snapshots

import (
	"slices"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// putData puts a snapshot of some bytes into a store.
func putData(t *testing.T, s *storage.Store, name, uid string) {
	t.Helper()
	k := snapshot.Key{Namespace: "n", Name: name}
	w, err := s.NewWriter(t.Context(), k, storage.WriterOptions{Codec: storage.CodecNone})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.File("f").Chunk(storagetest.Bytes(uint64(len(uid))+uint64(uid[len(uid)-1]), 1000)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context(), snapshot.Meta{Key: k, UID: uid}); err != nil {
		t.Fatal(err)
	}
}

// replicated journals a snapshot that was replicated.
func replicated(t *testing.T, a *rig, i int, name, uid string) {
	t.Helper()
	r := journaltest.Record(i, journal.StageReplicated)
	r.Key, r.UID = snapshot.Key{Namespace: "n", Name: name}, uid
	journaltest.Put(t, a.journal, r)
}

func wantSpool(t *testing.T, a *rig, want ...string) {
	t.Helper()
	keys, err := a.spoolKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range keys {
		got = append(got, k.Name)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the spool has %q, want %q", got, want)
	}
}

func shrink(t *testing.T, a *rig, size int64) {
	t.Helper()
	a.stores.o.CacheSize = size
	if err := a.evictor.shrinkSpool(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestShrinkKeepsANewSnapshotOfAnOldName: the journal remembers another snapshot of that name, which was replicated and
// removed. The new snapshot is only in the spool.
func TestShrinkKeepsANewSnapshotOfAnOldName(t *testing.T) {
	a := newRig(t, nil)
	replicated(t, a, 1, "x", "old")
	fresh := journaltest.Record(2, journal.StageSpooled)
	fresh.Key, fresh.UID = snapshot.Key{Namespace: "n", Name: "x"}, "new"
	journaltest.Put(t, a.journal, fresh)
	putData(t, a.stores.spool, "x", "new")
	shrink(t, a, 0)
	wantSpool(t, a, "x")
	replicated(t, a, 2, "x", "new")
	shrink(t, a, 0)
	wantSpool(t, a)
}

// TestShrinkGoesByUse: of three snapshots that are also in the store, the least recently used one is evicted. Uses that
// an earlier agent noted count, too.
func TestShrinkGoesByUse(t *testing.T) {
	a := newRig(t, nil)
	for i, name := range []string{"a", "b", "c"} {
		putData(t, a.stores.spool, name, "uid-"+name)
		replicated(t, a, i, name, "uid-"+name)
	}
	s, err := a.readers.Open(t.Context(), ID{Key: snapshot.Key{Namespace: "n", Name: "a"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	a.readers.Release(s)
	shrink(t, a, 2000)
	wantSpool(t, a, "a", "c")
	again := &rig{
		stores: a.stores, journal: a.journal, backlog: a.backlog, unsettled: a.unsettled, life: a.life,
	}
	again.begin(NewBell())
	shrink(t, again, 1000)
	wantSpool(t, a, "a")
	if len(again.readers.uses.at) != 1 {
		t.Errorf("remembered: %v", again.readers.uses.at)
	}
}

// TestShrinkWithoutARecord: if the journal has forgotten a snapshot, the store is asked whether it has it.
func TestShrinkWithoutARecord(t *testing.T) {
	a := newRig(t, nil)
	far, err := a.stores.Get(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"here", "there", "other"} {
		putData(t, a.stores.spool, name, "uid-"+name)
	}
	putData(t, far, "there", "uid-there")
	putData(t, far, "other", "made-elsewhere")
	shrink(t, a, 0)
	wantSpool(t, a, "here", "other")
}
