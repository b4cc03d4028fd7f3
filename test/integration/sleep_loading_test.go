package integration

import (
	"context"
	"fmt"
	"os"
	"testing"

	"diapause.dev/test/bed"
)

// TestSleepWokenWhileLoading wakes pods by exec whose memory comes from a slow store. They are awake, and answer, long
// before they have all of it. One can be removed then, also without an agent; the other one goes on.
func TestSleepWokenWhileLoading(t *testing.T) {
	n, wire, flags := startSlow(t, bed.Options{})
	size := fmt.Sprintf("--mib=%d", loadingMiB)
	kept, removed := n.sleeper("kept", size), n.sleeper("removed", size)
	before := n.serving(kept)
	pods := []*bed.Pod{kept, removed}
	for i, p := range pods {
		n.sleep(fmt.Sprint("stored-", i), p)
		n.eventually("it is stored", n.isStored(fmt.Sprint("stored-", i)))
	}
	n.restartAgent(flags()...)
	for _, p := range pods {
		out, code, err := n.bed.Exec(n.ctx, p.Container("log"), "echo", "here")
		if err != nil || code != 0 || out != "here\n" {
			t.Errorf("exec in %s: %q, %d, %v", p.Name, out, code, err)
		}
		if err := n.topsAsleep(p, false); err != nil {
			t.Error(err)
		}
	}
	hurry := wire.stop()
	defer hurry()
	for _, p := range pods {
		if !n.isLoading(p) {
			t.Errorf("%s has been loaded: what waited for it was not seen", p.Name)
		}
	}
	n.agent.Kill()
	sentry := n.sentry(removed)
	err := n.bounded(t, "remove", func(ctx context.Context) error { return n.bed.RemovePod(ctx, removed.ID) })
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", sentry)); err == nil {
		t.Error("the sandbox is still there")
	}
	hurry()
	n.startAgent(flags()...)
	n.alive(kept, before)
	n.logsOn(kept)
	n.asleep(kept)
	n.alive(kept, before)
}

// isStored returns a check that a snapshot is in its store.
func (n *node) isStored(name string) func() error {
	return func() error {
		if s := n.snapshot(name); !s.Replicated {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}
}
