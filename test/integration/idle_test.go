package integration

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"diapause.dev/test/workload/answers"
)

// TestProbeRunsNothing: what the readiness probe asks, every few seconds for as long as a node lives,
// starts no process for any pod.
func TestProbeRunsNothing(t *testing.T) {
	n := start(t)
	p := n.workload("idle", "serve")
	n.serving(p)
	shim := parent(t, n.sentry(p))
	n.mustCLI("doctor")
	before := childFaults(t, shim)
	for range 3 {
		n.mustCLI("doctor")
	}
	if after := childFaults(t, shim); after != before {
		t.Errorf("the shim, process %d, has run something: its children had %s page faults, and now %s", shim, before, after)
	}
	n.mustCLI("top") // which does ask the sandboxes
	if childFaults(t, shim) == before {
		t.Error("a run of runsc does not show")
	}
}

// TestTraffic: the command line shows the packets that come for a pod, by port and protocol.
func TestTraffic(t *testing.T) {
	n := start(t)
	p := n.workload("busy", "serve")
	n.serving(p)
	ctx, cancel := context.WithCancel(n.ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			_ = n.get(p, "/state", new(answers.State)) // what fails is not seen below
		}
	})
	type flow struct {
		Protocol, From string
		Port           int
		PerMinute      float64 `json:"per_minute"`
	}
	var shown struct {
		Pod   string
		Flows []flow
	}
	n.decode(n.mustCLI("--output=json", "traffic", "--for=2s", "busy"), &shown)
	cancel()
	asking.Wait()
	var most flow
	if len(shown.Flows) > 0 {
		most = shown.Flows[0]
	}
	if shown.Pod != "default/busy" || most.Protocol != "TCP" || most.Port != 8080 || most.From == "" ||
		most.PerMinute < 30 {
		t.Errorf("shown: %+v", shown)
	}
}

// stat returns the fields of /proc/<pid>/stat behind the name; the first is number 3 in proc(5).
func stat(t *testing.T, pid int) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	s := string(b)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}

// parent returns the parent of a process.
func parent(t *testing.T, pid int) int {
	t.Helper()
	p, err := strconv.Atoi(stat(t, pid)[1])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// childFaults returns how many page faults the children had that a process has waited for.
func childFaults(t *testing.T, pid int) string {
	t.Helper()
	return stat(t, pid)[8]
}
