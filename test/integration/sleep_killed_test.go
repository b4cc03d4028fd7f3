package integration

import (
	"context"
	"testing"

	"golang.org/x/sync/errgroup"

	"diapause.dev/test/bed"
)

// TestSleepKilledWaking kills one pod, and removes another, while their wakes wait for a store that stands still. They
// end long before the wakes would be given up, and leave nothing.
func TestSleepKilledWaking(t *testing.T) {
	n, wire, flags := startSlow(t, bed.Options{})
	pods := []*bed.Pod{n.sleeper("killed", "--mib=8"), n.sleeper("removed", "--mib=8")}
	for _, p := range pods {
		n.sleep(p.Name, p)
		n.eventually("it is stored", n.isStored(p.Name))
	}
	n.restartAgent(flags()...)
	var answers []<-chan error
	hurry := func() {}
	for i, p := range pods {
		answers = append(answers, n.wakesInPart(p, func() {
			if i == len(pods)-1 {
				hurry = wire.stop()
			}
		}))
	}
	defer hurry()
	ctx, cancel := context.WithTimeout(n.ctx, hungLimit)
	defer cancel()
	var g errgroup.Group
	g.Go(func() error { return n.bed.StopContainer(ctx, pods[0].Container("app"), 0) })
	g.Go(func() error { return n.bed.RemovePod(ctx, pods[1].ID) })
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	t.Log("ended")
	for _, name := range []string{"app", "log"} {
		n.endedWith(pods[0], name, 137)
	}
	n.removed(pods[0])
	for i, p := range pods {
		if <-answers[i] == nil {
			t.Errorf("%s was awake: what waits for its wake was not seen", p.Name)
		}
		n.nothingLeft(p)
	}
}
