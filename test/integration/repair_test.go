package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestRepair: what is damaged on the node or in the store comes back from the other. What is damaged in both is named,
// is not restorable, and the next checkpoint has nothing of it.
func TestRepair(t *testing.T) {
	n := start(t)
	p := n.workload("origin", "serve", "--mib=16")
	before := n.serving(p)
	n.checkpoint("origin", "--name=sound")
	packs := n.glob("default/packs/*") // one in the spool, one in the store
	for _, pack := range packs {
		undo := n.damage([]string{pack}, flip(0.3))
		n.refused([]string{"1 of 1 snapshots are damaged", "verify --repair"}, "verify", "--read-data", "sound")
		if out := n.mustCLI("verify", "--repair", "sound"); !strings.Contains(out, "repaired") ||
			!strings.Contains(out, filepath.Base(pack)) {
			t.Errorf("repaired: %s", out)
			undo()
		}
		n.mustCLI("verify", "--read-data", "sound")
	}
	n.checkWhole(n.restore("sound", "--name=branch")[0], before.Boot, 16)
	n.idle()

	undo := n.damage(packs, flip(0.3))
	n.refused([]string{"1 of 1 snapshots are damaged", "diapause rm"}, "verify", "--repair", "sound")
	if s := n.snapshot("sound"); s.OnNode || !strings.Contains(s.Problem, filepath.Base(packs[0])) {
		t.Errorf("snapshot %+v", s)
	}
	n.checkpoint("origin", "--name=next")
	n.mustCLI("verify", "--read-data", "next")
	undo()
	n.mustCLI("verify", "--repair", "sound")
	if s := n.snapshot("sound"); !s.OnNode || s.Problem != "" {
		t.Errorf("snapshot %+v", s)
	}
	n.unharmed(p, before)
}

// TestDamagedBeforeReplication: a snapshot that is damaged before it is in the store is given up, and says so; the next
// one is whole.
func TestDamagedBeforeReplication(t *testing.T) {
	at := newPlace(t)
	tmpfs(t, at.store, "size=2m")
	at.makeStore(t)
	n := start(t, at.flags()...)
	p := n.workload("origin", "serve", "--mib=16")
	before := n.serving(p)
	n.refused([]string{"default/kept", "this node only", "no space left"}, "checkpoint", "--name=kept", "origin")
	packs, err := filepath.Glob(filepath.Join(at.state, "spool/default/packs/*"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("packs %q, %v", packs, err)
	}
	n.agent.Kill() // one that is just trying again may have the pack open, and would then replicate what is whole
	n.damage(packs, flip(0.3))
	n.resize(at.store, "size=512m")
	n.startAgent(at.flags()...)
	n.eventually("it is given up", func() error {
		if s := n.snapshot("kept"); s.OnNode || s.Replicated || !strings.Contains(s.Problem, filepath.Base(packs[0])) {
			return fmt.Errorf("snapshot %+v", s)
		}
		return nil
	})
	if s := n.checkpoint("origin", "--name=next"); !s.Replicated || !s.OnNode {
		t.Errorf("snapshot %+v", s)
	}
	n.checkWhole(n.restore("next", "--name=branch")[0], before.Boot, 16)
	n.alive(p, before)
}
