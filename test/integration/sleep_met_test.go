package integration

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/sleep"
	"diapause.dev/test/workload/answers"
)

// TestSleepMet has a packet come for a pod that is paused, when its snapshot is being stored. The pod answers without
// waiting for that: the agent stands still meanwhile. Its lease of the pause would run out later than the test waits.
func TestSleepMet(t *testing.T) {
	const wait = 10 * time.Second
	var now answers.State
	n := start(t)
	p := n.sleeper("met", "--mib", "256")
	before := n.serving(p)
	for {
		var met error
		err := n.duringSleep("spool", p, func() {
			n.signal(n.agent.PID(), syscall.SIGSTOP)
			defer n.signal(n.agent.PID(), syscall.SIGCONT)
			met = n.getWithin(p, "/state", &now, wait)
		})
		if err == nil {
			t.Log("the agent was stopped too late: the pod slept")
			n.alive(p, before)
			continue
		}
		if met != nil || now.Boot != before.Boot || !strings.Contains(err.Error(), "packets came") {
			t.Errorf("while it was paused: %v; its sleep: %v", met, err)
		}
		break
	}
	n.alive(p, before)
	n.sleep("", p)
	n.alive(p, before)
}

// TestSleepGivenUp gives up the sleep of a pod that is paused, as an agent does that cannot end the pause because
// containerd is away. The pod runs on at once: a containerd that starts just then ends sandboxes that are paused. The
// lease of the pause would run out later than the test waits.
func TestSleepGivenUp(t *testing.T) {
	n := start(t)
	p := n.sleeper("given-up", "--mib", "8")
	before := n.serving(p)
	c := n.containerd()
	var containers []string
	for _, x := range p.Containers {
		containers = append(containers, x.ID)
	}
	n.eventually("it is watched", func() error { // the last packets of a connection may come late: see trySleep
		err := c.OrderSleep(n.ctx, p.ID, sleep.Order{Verb: sleep.Watch, Containers: containers})
		if err != nil && !errors.Is(err, sleep.ErrTraffic) {
			t.Fatal(err)
		}
		return err
	})
	if _, err := c.PauseFor(n.ctx, p.ID, "holder", lease.Longest); err != nil {
		t.Fatal(err)
	}
	if err := c.OrderSleep(n.ctx, p.ID, sleep.Order{Verb: sleep.Stay}); err != nil {
		t.Fatal(err)
	}
	if n.paused(p) {
		t.Error("the pod is paused")
	}
	n.alive(p, before)
	if err := c.EndPause(n.ctx, p.ID, "holder"); !errors.Is(err, lease.ErrRanOut) {
		t.Errorf("the lease is still held: %v", err)
	}
}
