// Package integration tests the shim with real pods: containerd, runsc and the shim's own binary. Only the agent is a
// stand-in. It answers as each test wants.
package integration

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cri"
	"diapause.dev/test/bed"
	"google.golang.org/grpc"
)

var (
	node   *bed.Bed
	client *cri.Client
)

func TestMain(m *testing.M) {
	bed.MainShared(m, func(ctx context.Context, b *bed.Bed) (err error) {
		node = b
		client, err = cri.Dial(ctx, cri.Options{})
		return err
	})
}

// agent answers the shim as a test wants, and keeps the reports that it gets.
type agent struct {
	localv1.UnimplementedShimServer
	answer  func(context.Context, *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error)
	reports chan *localv1.ReportRestoreRequest        // nil: a report waits
	hear    func(*localv1.ReportRestoreRequest) error // called with each report, and may fail it; may be nil
}

func (a *agent) AskRestore(ctx context.Context, req *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error) {
	return a.answer(ctx, req)
}

func (a *agent) ReportRestore(ctx context.Context,
	req *localv1.ReportRestoreRequest,
) (*localv1.ReportRestoreResponse, error) {
	if a.hear != nil {
		if err := a.hear(req); err != nil {
			return nil, err
		}
	}
	select {
	case a.reports <- req:
		return &localv1.ReportRestoreResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// startAgent serves the shim until the test ends.
func startAgent(t *testing.T, answer func(context.Context, *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse,
	error),
) *agent {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(bed.AgentSocket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", bed.AgentSocket)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{answer: answer, reports: make(chan *localv1.ReportRestoreRequest, 16)}
	s := grpc.NewServer()
	localv1.RegisterShimServer(s, a)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return a
}

// decide returns an agent that always gives the same answer.
func decide(
	resp *localv1.AskRestoreResponse,
) func(context.Context, *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error) {
	return func(context.Context, *localv1.AskRestoreRequest) (*localv1.AskRestoreResponse, error) {
		return resp, nil
	}
}

// report returns the agent's next report.
func (a *agent) report(t *testing.T) *localv1.ReportRestoreRequest {
	t.Helper()
	select {
	case r := <-a.reports:
		return r
	case <-time.After(longest):
		t.Fatal("the agent was told nothing")
		return nil
	}
}

// longest is how long a test waits for what should come at once. Only a hang takes that long. A failing restore takes
// seconds, because runsc gives a sandbox time to exit.
const longest = 2 * time.Minute

// limited returns the test's context with a deadline, so that a hang fails the test that hangs.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	t.Cleanup(cancel)
	return ctx
}

// count is the script of a container that keeps an identity and a number in memory only, and writes both to a file.
const count = `boot=$(head -c 8 /dev/urandom | od -An -tx8 | tr -d ' ')
n=0
while :; do n=$((n+1)); echo "$boot $n" > /tmp/state.new; mv /tmp/state.new /tmp/state; usleep 10000; done`

// spec returns a pod with two containers that count independently.
func spec(name string, annotations map[string]string) bed.PodSpec {
	c := []string{"/bin/sh", "-c", count}
	return bed.PodSpec{
		Name: name, Annotations: annotations,
		Containers: []bed.Container{{Name: "a", Command: c}, {Name: "b", Command: c}},
	}
}

// runPod runs a pod and removes it when the test ends.
func runPod(t *testing.T, s bed.PodSpec) *bed.Pod {
	t.Helper()
	pod, err := node.RunPod(limited(t), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removePod(t, pod.ID) })
	return pod
}

func removePod(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := client.RemovePod(ctx, id); err != nil {
		t.Error(err)
	}
}

// state reads a container's identity and number.
func state(t *testing.T, container string) (boot string, n int) {
	t.Helper()
	boot, n, err := readState(t, container)
	if err != nil {
		t.Fatal(err)
	}
	return boot, n
}

func readState(t *testing.T, container string) (boot string, n int, err error) {
	t.Helper()
	ctx := limited(t)
	for ctx.Err() == nil {
		out, _, err := node.Exec(ctx, container, "cat", "/tmp/state")
		if err != nil {
			return "", 0, err
		}
		if f := strings.Fields(out); len(f) == 2 {
			n, err := strconv.Atoi(f[1])
			return f[0], n, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "", 0, errors.New("the container shows no state")
}
