package integration

import (
	"strings"
	"syscall"
	"testing"
	"time"

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
	n.eventually("the pod sleeps", func() error {
		_, err := n.cli("sleep", p.ID)
		return err
	})
	n.alive(p, before)
}
