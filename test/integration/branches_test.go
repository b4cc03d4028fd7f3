package integration

import (
	"testing"

	"diapause.dev/test/workload/answers"
)

// TestBranches checkpoints a pod that goes on running, and restores it as pods that go their own
// ways from the same instant.
func TestBranches(t *testing.T) {
	n := start(t)
	p := n.workload("origin", "serve", "--mib", "32")
	before := n.serving(p)
	s := n.checkpoint("origin")
	if !s.Replicated || !s.OnNode || s.RawBytes < 32<<20 || s.StoredBytes >= s.RawBytes {
		t.Errorf("snapshot %+v", s)
	}
	var after answers.State
	if err := n.get(p, "/state", &after); err != nil || after.Boot != before.Boot || after.Counter < before.Counter {
		t.Fatalf("origin after the checkpoint: %+v, before %+v: %v", after, before, err)
	}
	pods := n.restore(s.Name, "--count=2", "--name=branch")
	if len(pods) != 2 {
		t.Fatalf("%d pods", len(pods))
	}
	for _, b := range pods {
		st := n.serving(b)
		if st.Boot != before.Boot || st.Counter < before.Counter {
			t.Errorf("branch %s is at %+v, the snapshot was at %+v", b.Name, st, before)
		}
		var v answers.Memory
		if err := n.get(b, "/verify", &v); err != nil || !v.OK || v.Pages != 32<<8 {
			t.Errorf("memory of %s: %+v, %v", b.Name, v, err)
		}
	}
	n.exitCode(pods[0])
}
