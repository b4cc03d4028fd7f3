package integration

import (
	"path/filepath"
	"testing"

	"diapause.dev/test/bed"
)

// TestObjectStore checkpoints while the object store is away, has it come up, and restores from it
// alone.
func TestObjectStore(t *testing.T) {
	at := newPlace(t)
	store, err := bed.StartGCS(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	store.Kill()
	t.Setenv("STORAGE_EMULATOR_HOST", store.Address)
	n := start(t, "--state-dir="+at.state, "--store=gs://bucket/some/prefix")
	p := n.workload("origin", "serve", "--mib", "16")
	before := n.serving(p)
	n.refused([]string{"default/first", "this node only", "gs://bucket/some/prefix"}, "checkpoint", "--name=first",
		"origin")
	n.alive(p, before)
	n.mustCLI("checkpoint", "--no-wait", "--name=second", "origin")
	n.refused([]string{"list snapshots", "gs://bucket/some/prefix"}, "ls")
	b := n.restore("first", "--name=near")[0]
	if st := n.serving(b); st.Boot != before.Boot {
		t.Errorf("branch is at %+v, the snapshot was at %+v", st, before)
	}

	if err := store.Start(n.ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	n.settled(at) // by itself
	n.unharmed(p, before)

	n.agent.Kill()
	n.startAgent("--state-dir="+filepath.Join(t.TempDir(), "another"), "--store=gs://bucket/some/prefix")
	for _, name := range []string{"first", "second"} {
		if s := n.snapshot(name); s.OnNode || !s.Replicated {
			t.Errorf("snapshot %+v", s)
		}
		b := n.restore(name, "--name=far-"+name)[0]
		if st := n.serving(b); st.Boot != before.Boot {
			t.Errorf("branch is at %+v, the snapshot was at %+v", st, before)
		}
		n.verify(b)
	}
}
