package restore

import (
	"errors"
	"slices"
	"testing"

	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
	"diapause.dev/storage"
	"diapause.dev/storage/storagetest"
)

// farSnapshot returns a rig, and the reader of a snapshot that is only in a store.
func farSnapshot(t *testing.T) (*rig, *snapshots.Reader) {
	t.Helper()
	far := storagetest.NewDir(t)
	image := storagetest.Image{runsc.PagesFile: nil}
	for i := range 80 {
		image[runsc.PagesFile] = append(image[runsc.PagesFile], storagetest.Bytes(uint64(i+2), snapshots.ChunkSize))
	}
	m := storagetest.Write(t, far, snapshot.Key{Namespace: "ns", Name: "one"}, nil, image)
	rs := newRig(t)
	s := &snapshots.Reader{Reader: storage.NewReader(m, rs.stores.Spool(), far), Manifest: m, Far: far}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rs, s
}

// TestPartialWorkingSet: nothing is recorded of a restore that failed or that another agent began. If such a restore
// was recorded all the same, the next complete one replaces its working set.
func TestPartialWorkingSet(t *testing.T) {
	rs, s := farSnapshot(t)
	restored := func(end func(*restore)) []storage.ChunkRef {
		t.Helper()
		rs.Readers.Retain(s) // one more than the restore
		rs.Readers.Retain(s)
		r := newRestore(record{Request: "r", Key: s.Manifest.Meta.Key})
		r.image, r.serving = rs.loader.Image(r.imageOptions(), s), 1
		r.image.Asked(runsc.PagesFile, 0, 3*snapshots.ChunkSize, gofer.Awaited)
		rs.registry.add(r)
		end(r)
		rs.Life.Wait()
		<-r.ended
		set, err := s.Far.WorkingSet(t.Context(), s.Manifest)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			t.Fatal(err)
		}
		return set
	}
	failure := errors.New("it failed")
	ended := func(r *restore, end gofer.End) { (&source{rs: rs.Restores, restore: r}).Ended(end, nil) }
	for name, end := range map[string]func(*restore){
		"a read failed":         func(r *restore) { r.note(failure); ended(r, gofer.Loaded) },
		"the shim says so":      func(r *restore) { rs.Reported(r.Request, r.SandboxID, failure); ended(r, gofer.Lost) },
		"so, without a sidecar": func(r *restore) { r.serving = 0; rs.Reported(r.Request, r.SandboxID, failure) },
		"another agent began":   func(r *restore) { r.revived = true; ended(r, gofer.Loaded) },
	} {
		if set := restored(end); len(set) > 0 {
			t.Errorf("%s: recorded %v", name, set)
		}
	}
	if err := s.Far.PutWorkingSet(t.Context(), s.Manifest, s.Locate(runsc.PagesFile, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if set := restored(func(r *restore) { ended(r, gofer.Loaded) }); len(set) != 3 {
		t.Errorf("recorded: %v", set)
	}
	more := s.Locate(runsc.PagesFile, 9*snapshots.ChunkSize, 1)
	if set := restored(func(r *restore) {
		r.image.Asked(runsc.PagesFile, 9*snapshots.ChunkSize, 1, gofer.Awaited)
		r.note(failure)
		ended(r, gofer.Loaded)
	}); len(set) != 3 || slices.Contains(set, more[0]) {
		t.Errorf("a restore that failed has changed it to %v", set)
	}
	if set := restored(func(r *restore) {
		r.image.Asked(runsc.PagesFile, 9*snapshots.ChunkSize, 1, gofer.Awaited)
		ended(r, gofer.Loaded)
	}); len(set) != 4 || !slices.Contains(set, more[0]) {
		t.Errorf("after another restore it is %v, want one more", set)
	}
}
