package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestSleepAgentKilledWoken kills the agent once a pod that wakes has all its memory, and before the pod's shim says
// that it is awake. The next agent hears that, or comes too late to hear it. Either way the pod is awake, can sleep
// again, and the snapshot of its former sleep is removed then.
func TestSleepAgentKilledWoken(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	hold := n.holdRevived()
	p := n.sleeper("woken", "--mib", "8")
	before := n.serving(p)
	for _, heard := range []bool{true, false} {
		n.asleep(p)
		n.settled(at)
		n.eventually("it has one snapshot", n.hasSnapshots(1))
		held, release := hold()
		answered := n.wakesInPart(p, func() {
			n.eventually("its shim is about to say that it is awake", held)
			n.eventually("the agent has given it everything", n.restoresEnd)
			n.agent.Kill()
			if heard {
				n.startAgent(at.flags()...)
				release()
				return
			}
			release()
			n.eventually("its shim gives up", func() error {
				if !strings.Contains(n.bed.Containerd.Log(), "tell the agent how the wake went") {
					return errors.New("it tries again")
				}
				return nil
			})
			n.startAgent(at.flags()...)
		})
		if err := <-answered; err != nil {
			t.Errorf("heard: %v: %v", heard, err)
		}
		n.eventually("it is shown as awake", func() error { return n.topsAsleep(p, false) })
		n.alive(p, before)
		n.logsOn(p)
		if k := n.reminders(); k != 0 {
			t.Errorf("heard: %v: %d pods are remembered as asleep", heard, k)
		}
		n.eventually("agents were told of the first wake alone", func() error {
			if k := strings.Count(n.agent.Log(), "pod is awake"); k != 1 { // the log of all agents
				return fmt.Errorf("they were told %d times", k)
			}
			return nil
		})
	}
	n.asleep(p)
	n.settled(at)
	n.eventually("it has one snapshot", n.hasSnapshots(1))
	n.alive(p, before)
}

// hasSnapshots returns a check that there are so many snapshots.
func (n *node) hasSnapshots(want int) func() error {
	return func() error {
		var all struct{ Snapshots []snapshotted }
		n.decode(n.mustCLI("--output=json", "ls"), &all)
		if len(all.Snapshots) != want {
			return fmt.Errorf("%d snapshots, want %d: %+v", len(all.Snapshots), want, all.Snapshots)
		}
		return nil
	}
}

// restoresEnd returns an error while a restore is under way, or prepared.
func (n *node) restoresEnd() error {
	if left := n.restores(); len(left) > 0 {
		return fmt.Errorf("restores: %q", left)
	}
	return nil
}
