package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/test/bed"
)

type answer = func(context.Context, *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error)

// hang does not answer before the shim has given up.
func hang(ctx context.Context, _ *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// undecided answers n times that there is no decision yet.
func undecided(n int, then *localv1.AskRestoreResponse) answer {
	return func(context.Context, *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error) {
		if n--; n >= 0 {
			time.Sleep(200 * time.Millisecond)
			return &localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_WAIT}, nil
		}
		return then, nil
	}
}

var (
	named  = map[string]string{"diapause.dev/restore-from": "default/s"}
	strict = map[string]string{"diapause.dev/restore-from": "default/s", "diapause.dev/on-restore-failure": "Fail"}
)

// TestAsk starts pods with every kind of answer that an agent can give, and measures the delay for the pod.
func TestAsk(t *testing.T) {
	fail := &localv1.AskRestoreResponse{
		Decision: localv1.AskRestoreResponse_FAIL, Request: "r7",
		Reason: "no such snapshot",
	}
	for _, tc := range []struct {
		name        string
		answer      answer // nil: no agent
		annotations map[string]string
		min         time.Duration // of RunPod
		want        string        // part of the error; empty: the pod starts
	}{
		{name: "no agent"},
		{name: "no agent, named", annotations: named, min: 5 * time.Second},
		{name: "no agent, strict", annotations: strict, min: 5 * time.Second, want: "no answer within 5s"},
		{name: "agent hangs", answer: hang, min: 500 * time.Millisecond},
		{name: "agent hangs, strict", answer: hang, annotations: strict, min: 5 * time.Second, want: "no answer within 5s"},
		{
			name: "start", answer: decide(&localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_START}),
			annotations: strict,
		},
		{name: "not decided yet", answer: undecided(4, fail), want: "no such snapshot"},
		{name: "unknown decision", answer: decide(&localv1.AskRestoreResponse{Decision: 77})},
		{name: "fail", answer: decide(fail), want: "no such snapshot"},
		{
			name:        "relative path, strict",
			answer:      decide(&localv1.AskRestoreResponse{Decision: localv1.AskRestoreResponse_RESTORE, ImagePath: "x"}),
			annotations: strict, want: "not an absolute path",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.answer != nil {
				startAgent(t, tc.answer)
			}
			before := processes(t)
			began := time.Now()
			pod, err := node.RunPod(limited(t), bed.PodSpec{Name: "asker", Annotations: tc.annotations})
			took := time.Since(began)
			t.Logf("RunPod took %v", took)
			if took < tc.min {
				t.Errorf("RunPod took %v, want at least %v", took, tc.min)
			}
			if err == nil {
				removePod(t, pod.ID)
			}
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			}
			nothingLeft(t, before)
		})
	}
}

// TestAgentRestarts: the agent comes only while the shim asks for a pod that names a snapshot.
func TestAgentRestarts(t *testing.T) { comeLate(t, named) }

// TestAgentReplaced: on a node of a cluster, the agent comes only while the shim asks for a pod that names no
// snapshot.
func TestAgentReplaced(t *testing.T) {
	marker := filepath.Join(filepath.Dir(bed.AgentSocket), "cluster")
	if err := os.MkdirAll(filepath.Dir(marker), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(marker)
	comeLate(t, nil)
}

// comeLate starts a pod, and then an agent that restores it.
func comeLate(t *testing.T, annotations map[string]string) {
	t.Helper()
	origin := runPod(t, spec("origin", nil))
	boot, _ := state(t, origin.Container("a"))
	dir := checkpoint(t, origin)
	type result struct {
		pod *bed.Pod
		err error
	}
	started := make(chan result, 1)
	go func() {
		pod, err := node.RunPod(limited(t), spec("late", annotations))
		started <- result{pod, err}
	}()
	time.Sleep(1500 * time.Millisecond)
	startAgent(t, decide(restoreFrom(dir)))
	r := <-started
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer removePod(t, r.pod.ID)
	if got, _ := state(t, r.pod.Container("a")); got != boot {
		t.Errorf("container a is %s, want %s: it was not restored", got, boot)
	}
}

// processes returns the bed's shims and sandboxes, by process id.
func processes(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, e := range entries {
		cmdline, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue
		}
		if c := strings.ReplaceAll(string(cmdline), "\x00", " "); strings.Contains(c, "containerd-shim-diapause") ||
			strings.HasPrefix(c, "runsc-") {
			found[e.Name()] = c
		}
	}
	return found
}

// nothingLeft checks that no process is left that was not there before.
func nothingLeft(t *testing.T, before map[string]string) {
	t.Helper()
	err := bed.Until(limited(t), func() error {
		left := processes(t)
		for pid := range before {
			delete(left, pid)
		}
		if len(left) > 0 {
			return fmt.Errorf("processes left: %v", left)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
