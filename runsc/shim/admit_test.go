package shim

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"google.golang.org/grpc"
)

// slowAgent lets a pod wait, and admits it when it asks for the third time.
type slowAgent struct {
	localv1.UnimplementedShimServer
	asked chan *localv1.AskWakeRequest
}

func (a slowAgent) AskWake(_ context.Context, r *localv1.AskWakeRequest) (*localv1.AskWakeResponse, error) {
	a.asked <- r
	if len(a.asked) == cap(a.asked) {
		return &localv1.AskWakeResponse{Decision: localv1.AskWakeResponse_WAKE}, nil
	}
	return &localv1.AskWakeResponse{Decision: localv1.AskWakeResponse_WAIT, Reason: "memory: it needs 5 MiB"}, nil
}

// agentServing returns an agent whose shim service a is. Nil: nobody answers.
func agentServing(t *testing.T, a localv1.ShimServer) agent {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	if a != nil {
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer()
		localv1.RegisterShimServer(g, a)
		go g.Serve(l)
		t.Cleanup(g.Stop)
	}
	return newAgent(socket)
}

// sleeping returns what wakes a pod, which asks an agent. Nil: there is none.
func sleeping(t *testing.T, a localv1.ShimServer) *waking {
	t.Helper()
	c := testContainers(t, agentServing(t, a), pod{sandbox: "sandbox"}, nil)
	return &waking{podSleep: newPodSleep(t.Context(), nil, c, &sandbox{containers: c})}
}

// TestAskWake: a pod wakes once the agent says so. Meanwhile it is known what it waits for.
func TestAskWake(t *testing.T) {
	a := slowAgent{asked: make(chan *localv1.AskWakeRequest, 3)}
	z := sleeping(t, a)
	over := make(chan struct{})
	for i, want := range []bool{false, false, true} {
		if got := z.admitted(t.Context(), "/requests/abc", over, time.Minute); got != want {
			t.Errorf("question %d: admitted %v", i, got)
		}
		if why := z.shared.waitsFor(); strings.Contains(why, "waits for memory: it needs 5 MiB") == want {
			t.Errorf("question %d: %q", i, why)
		}
	}
	r := <-a.asked
	if r.Request != "abc" || r.SandboxId != "sandbox" || r.Room <= 0 || r.Waited.AsDuration() != time.Minute {
		t.Errorf("asked %v", r)
	}
}

// TestAskWakeOfNobody: without an agent a pod waits, until its sleep is over.
func TestAskWakeOfNobody(t *testing.T) {
	z, over := sleeping(t, nil), make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() { close(over) })
	began := time.Now()
	if z.admitted(t.Context(), "/requests/abc", over, 0) {
		t.Error("it wakes")
	}
	if took := time.Since(began); took >= wakeAnswerWait {
		t.Errorf("its end was noticed after %v", took)
	}
}
