package integration

import (
	"fmt"
	"slices"
	"testing"
)

// TestSleepCheckpointed checkpoints a pod that sleeps, before and after a restart of the agent. It is not woken, and
// each snapshot is one of its own: it can be restored while the pod sleeps and after it has woken, and removed without
// harm to the others. A pod that is to be stopped ends in its sleep.
func TestSleepCheckpointed(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.sleeper("sleeper", "--mib", "8")
	before := n.serving(p)
	n.sleep("slept", p)
	for _, name := range []string{"first", "second"} {
		s := n.checkpoint("--name="+name, p.ID)
		if s.Purpose != "checkpoint" || !s.OnNode || !s.Replicated || s.Parent != "default/slept" {
			t.Errorf("%s is %+v", name, s)
		}
		for _, stage := range s.Timeline {
			if stage.Name == "capture" {
				t.Errorf("%s was captured: %+v", name, s.Timeline)
			}
		}
		n.restartAgent(at.flags()...)
	}
	n.mustCLI("rm", "second")
	n.mustCLI("gc", "--grace=0s")
	branch := n.restore("first", "--name=branch")[0]
	n.alive(branch, before)
	if err := n.topsAsleep(p, true); err != nil {
		t.Error(err)
	}
	n.alive(p, before) // its packets wake it
	n.eventually("removed", func() error {
		_, err := n.cli("rm", "slept")
		return err
	})
	n.mustCLI("gc", "--grace=0s")
	n.mustCLI("verify")
	n.alive(n.restore("first", "--name=later")[0], before)

	n.sleep("", p)
	s := n.checkpoint("--stop", "--name=stopped", p.ID)
	if codes := n.ended(p); !slices.Equal(codes, []int32{137, 137}) {
		t.Errorf("exit codes %d, snapshot %+v", codes, s)
	}
	n.alive(n.restore("stopped", "--name=successor")[0], before)
	n.settled(at)
}

// TestSleepCheckpointMustWake checkpoints the files alone of a pod that sleeps: it is woken for that.
func TestSleepCheckpointMustWake(t *testing.T) {
	n := start(t)
	p := n.sleeper("files", "--mib", "8")
	before := n.serving(p)
	n.asleep(p)
	if s := n.checkpoint("--rootfs-only", "--name=files", p.ID); !s.Replicated {
		t.Errorf("snapshot %+v", s)
	}
	n.eventually("awake", func() error { return n.topsAsleep(p, false) })
	n.alive(p, before)
	for range 2 { // whoever wakes it while it is checkpointed
		n.asleep(p)
		answered := make(chan error, 1)
		go func() {
			r, err := impatient.Get("http://" + p.IP + ":8080/state")
			if err == nil {
				err = r.Body.Close()
			}
			answered <- err
		}()
		s := n.checkpoint(p.ID)
		if err := <-answered; err != nil {
			t.Error(err)
		}
		n.alive(p, before)
		b := n.restore(s.Name, fmt.Sprint("--name=of-", s.Name))[0]
		n.alive(b, before)
	}
}
