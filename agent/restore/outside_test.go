package restore

import (
	"testing"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/storage"
)

// TestVolumesCompared: a snapshot whose volume is not as it was is not restored, unless the restore wakes a pod, or the
// pod says that it does not matter.
func TestVolumesCompared(t *testing.T) {
	a := newRig(t)
	facts, err := a.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := a.stores.Spool().NewWriter(t.Context(), saved, storage.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.File(runsc.StateFile).Chunk([]byte("some")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context(), snapshot.Meta{Key: saved, UID: "one", Facts: facts, Volumes: []snapshot.Volume{{
		Host: "/nowhere/on/this/node", Container: "app", Path: "/data", Files: []snapshot.VolumeFile{{Path: "file", Size: 1}},
	}}}); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		choice   Choice
		restored bool
	}{
		"new": {Choice{}, false}, "own": {Choice{own: true}, false},
		"wakes": {Choice{wakes: true}, true}, "ignores": {Choice{IgnoreVolumes: true}, true},
	} {
		x.choice.Snapshot = saved
		_, _, err := a.prepare(t.Context(), x.choice, snapshot.PodRef{Namespace: "n", Name: name}, name, 0)
		if (err == nil) != x.restored {
			t.Errorf("%s: %v", name, err)
		}
	}
}
