package integration

import (
	"os/exec"
	"strings"
	"testing"

	"diapause.dev/test/bed"
)

// TestNetAdminEnded: without a cluster, too, a pod whose container had NET_ADMIN and has ended does not sleep, and the
// command line prints what a restore of it lacks. What the container has set is gone then.
func TestNetAdminEnded(t *testing.T) {
	n := start(t)
	const address = "10.200.0.1"
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "walled", Containers: []bed.Container{
		{
			Name: "fw", Command: []string{"/bin/ip", "addr", "add", address + "/32", "dev", "lo"},
			Capabilities: []string{"NET_ADMIN"},
		},
		{Name: "app", Command: []string{"/bin/sleep", "100000"}},
	}})
	must(t, err)
	n.endedWith(p, "fw", 0)
	addresses := func(p *bed.Pod) string {
		out, code, err := n.bed.Exec(n.ctx, p.Container("app"), "/bin/ip", "addr")
		if err != nil || code != 0 {
			t.Fatalf("%q, exit code %d, %v", out, code, err)
		}
		return out
	}
	if out := addresses(p); !strings.Contains(out, address) {
		t.Fatalf("the container has not set its address: %s", out)
	}
	_, err = n.cli("sleep", "walled")
	n.refusedWith([]string{"pod default/walled never sleeps: its container fw has NET_ADMIN"}, "sleep", err)
	out, err := exec.CommandContext(n.ctx, "diapause", "checkpoint", "--name=bare", "walled").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "warning: a restored pod lacks the firewall rules") {
		t.Errorf("%v: %s", err, out)
	}
	again := n.restore("bare", "--name=again", "--allow=capability:NET_ADMIN")[0]
	if out := addresses(again); strings.Contains(out, address) {
		t.Errorf("a restored pod has the address, so gVisor saves it: revise the rule: %s", out)
	}
}
