package snapshots

import (
	"os"
	"slices"
	"strings"
	"testing"

	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// TestVerifyRepairs: what is damaged in the spool or in the store is repaired from the other one. After that the
// snapshot is whole again.
func TestVerifyRepairs(t *testing.T) {
	k := snapshot.Key{Namespace: "n", Name: "s"}
	a := newReplicating(t, k)
	storagetest.Write(t, a.stores.spool, k, nil, storagetest.SmallImage(1))
	if !a.replicator.replicateAll(t.Context()) {
		t.Fatal("not replicated")
	}
	far, err := a.stores.own.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pack, readAll := packsOf(t, a, k)[0], storage.VerifyOptions{ReadData: true}
	for _, object := range []string{pack, "n/snapshots/s/manifest"} {
		for _, s := range []*storage.Store{a.stores.spool, far} {
			flip(t, pathIn(s, object))
			if v, err := a.catalog.Verify(t.Context(), k, readAll, false); err != nil || v.Err == nil {
				t.Errorf("%s in %s is not noticed: %v", object, s.Backend().Location(), err)
			}
			v, err := a.catalog.Verify(t.Context(), k, storage.VerifyOptions{}, true)
			if err != nil || v.Err != nil || len(v.Repaired) != 1 ||
				!strings.Contains(v.Repaired[0], s.Backend().Location()+": "+object) {
				t.Errorf("%s in %s: %+v, %v", object, s.Backend().Location(), v, err)
			}
			if v, err := a.catalog.Verify(t.Context(), k, readAll, false); err != nil || v.Err != nil {
				t.Errorf("%s in %s is still damaged: %v, %v", object, s.Backend().Location(), v.Err, err)
			}
		}
	}
}

// TestVerifyResumes: if a replication was given up because of damage, it resumes once the snapshot is whole again.
func TestVerifyResumes(t *testing.T) {
	k := snapshot.Key{Namespace: "n", Name: "s"}
	a := newReplicating(t, k)
	storagetest.Write(t, a.stores.spool, k, nil, storagetest.SmallImage(1))
	pack := a.path(packsOf(t, a, k)[0])
	flip(t, pack)
	if a.replicator.replicateAll(t.Context()); a.last(k).Stage != journal.StageFailed {
		t.Fatalf("it is %+v", a.last(k))
	}
	flip(t, pack) // back
	if v, err := a.catalog.Verify(t.Context(), k, storage.VerifyOptions{}, true); err != nil || v.Err != nil {
		t.Fatal(v.Err, err)
	}
	if a.replicator.replicateAll(t.Context()); a.last(k).Stage != journal.StageReplicated {
		t.Errorf("it is %+v", a.last(k))
	}
}

// TestVerifyMissing: a snapshot that its store has lost, as a bucket that was made again has, is damaged there. A
// repair has it replicated once more.
func TestVerifyMissing(t *testing.T) {
	k := snapshot.Key{Namespace: "n", Name: "s"}
	a := newReplicating(t, k)
	storagetest.Write(t, a.stores.spool, k, nil, storagetest.SmallImage(1))
	if !a.replicator.replicateAll(t.Context()) {
		t.Fatal("not replicated")
	}
	far, err := a.stores.own.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(pathIn(far, "n/snapshots/s/manifest")); err != nil {
		t.Fatal(err)
	}
	at := far.Backend().Location()
	v, err := a.catalog.Verify(t.Context(), k, storage.VerifyOptions{}, false)
	if err != nil || v.Err == nil || !strings.Contains(v.Err.Error(), at) {
		t.Errorf("it is not missed: %+v, %v", v, err)
	}
	v, err = a.catalog.Verify(t.Context(), k, storage.VerifyOptions{}, true)
	if err != nil || v.Err != nil || len(v.Repaired) != 1 || !strings.HasPrefix(v.Repaired[0], at) {
		t.Errorf("%+v, %v", v, err)
	}
	if !a.replicator.replicateAll(t.Context()) || a.last(k).Stage != journal.StageReplicated {
		t.Fatalf("it is %+v", a.last(k))
	}
	v, err = a.catalog.Verify(t.Context(), k, storage.VerifyOptions{ReadData: true}, false)
	if err != nil || v.Err != nil {
		t.Errorf("after the repair: %+v, %v", v, err)
	}
}

// TestVerifyMarks: a snapshot that is damaged beyond repair is not restorable on this node, and neither is one that
// shares its data. Both are restorable again once there is a sound copy.
func TestVerifyMarks(t *testing.T) {
	one, two := snapshot.Key{Namespace: "n", Name: "a"}, snapshot.Key{Namespace: "n", Name: "b"}
	a := newReplicating(t, one)
	m := storagetest.Write(t, a.stores.spool, one, nil, storagetest.SmallImage(1))
	storagetest.Write(t, a.stores.spool, two, m, storagetest.SmallImage(1))
	pack := packsOf(t, a, one)[0]
	flip(t, a.path(pack))
	v, err := a.catalog.Verify(t.Context(), one, storage.VerifyOptions{}, true)
	if err != nil || len(Parts(v.Err)) != 1 || !strings.Contains(Parts(v.Err)[0].Error(), pack) ||
		!slices.Equal(v.AlsoHurt, []string{"n/b"}) {
		t.Errorf("%+v, %v", v, err)
	}
	wantLocal := func(want bool) {
		t.Helper()
		for _, k := range []snapshot.Key{one, two} {
			if local, err := a.catalog.HasLocal(t.Context(), k); err != nil || local != want {
				t.Errorf("%s is restorable here: %v, %v", k, local, err)
			}
			if f, err := a.catalog.Find(t.Context(), k); err != nil || f.OnNode != want || (f.Problem == "") != want {
				t.Errorf("%s is shown as %+v, %v", k, f, err)
			}
		}
	}
	wantLocal(false)
	flip(t, a.path(pack)) // back
	for _, k := range []snapshot.Key{one, two} {
		if v, err := a.catalog.Verify(t.Context(), k, storage.VerifyOptions{}, true); err != nil || v.Err != nil {
			t.Errorf("%s: %v, %v", k, v.Err, err)
		}
	}
	wantLocal(true)
}
