package shim

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	localv1 "diapause.dev/api/local/v1"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ender is an agent that gives these answers, the last one again and again.
type ender struct {
	localv1.UnimplementedShimServer
	answers chan *localv1.AskEndResponse
	asked   chan *localv1.AskEndRequest
}

func (e *ender) AskEnd(ctx context.Context, req *localv1.AskEndRequest) (*localv1.AskEndResponse, error) {
	select {
	case e.asked <- req:
	default:
	}
	select {
	case resp := <-e.answers:
		return resp, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// clusterNode returns an agent's socket on a node of a cluster. If e is not nil, it answers there.
func clusterNode(t *testing.T, e *ender) agent {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, clusterMarker), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAgent(filepath.Join(dir, "agent.sock"))
	if e == nil {
		return a
	}
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	localv1.RegisterShimServer(s, e)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Error(err)
		}
	})
	return a
}

const (
	signals = localv1.AskEndResponse_SIGNAL
	waiting = localv1.AskEndResponse_WAIT
	saved   = localv1.AskEndResponse_SAVED
)

// answering returns an agent that gives these answers and then none.
func answering(limit time.Duration, all ...localv1.AskEndResponse_Decision) *ender {
	e := &ender{answers: make(chan *localv1.AskEndResponse, len(all)), asked: make(chan *localv1.AskEndRequest, 8)}
	for _, d := range all {
		e.answers <- &localv1.AskEndResponse{Decision: d, Limit: durationpb.New(limit)}
	}
	return e
}

// TestHeld: a signal is held while the pod is saved, and delivered unless the pod was saved: also if the agent falls
// silent, or takes longer than it said.
func TestHeld(t *testing.T) {
	p := pod{uid: "uid", sandbox: "sandbox", annotations: map[string]string{"k": "v"}}
	for name, tc := range map[string]struct {
		agent     *ender // nil: none listens
		held      bool
		delivered bool // later
	}{
		"no agent":              {nil, false, false},
		"not to be saved":       {answering(0, signals), false, false},
		"unknown answer":        {answering(0, 77), false, false},
		"agent hangs":           {answering(0), false, false},
		"saved already":         {answering(0, saved), true, false},
		"saved":                 {answering(time.Minute, waiting, waiting, saved), true, false},
		"not saved":             {answering(time.Minute, waiting, signals), true, true},
		"agent falls silent":    {answering(time.Minute, waiting, waiting), true, true},
		"takes too long":        {answering(time.Nanosecond, waiting, saved), true, true},
		"wants a negative time": {answering(-time.Minute, waiting, saved), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &deferredSignals{agent: clusterNode(t, tc.agent), pod: p}
			sent := make(chan *task.KillRequest, 1)
			send := func(_ context.Context, r *task.KillRequest) error {
				sent <- r
				return errors.New("it has ended")
			}
			r := &task.KillRequest{ID: "c", Signal: uint32(unix.SIGTERM)}
			if held := c.deferSignal(t.Context(), r, send, nil); held != tc.held {
				t.Fatalf("held: %v", held)
			}
			if tc.delivered {
				if got := <-sent; got != r {
					t.Errorf("sent %+v", got)
				}
			}
			for !c.begin("c") { // until the wait is over
				time.Sleep(time.Millisecond)
			}
			if len(sent) > 0 {
				t.Error("the signal was delivered once too often")
			}
			if tc.agent != nil {
				if req := <-tc.agent.asked; req.SandboxId != "sandbox" || req.Annotations["k"] != "v" {
					t.Errorf("asked %+v", req)
				}
			}
		})
	}
}

// TestHeldWhileBusy: the signal stays held while a busy agent, which saves the pod, is late with its answers.
func TestHeldWhileBusy(t *testing.T) {
	e := answering(time.Minute, waiting)
	c := &deferredSignals{agent: clusterNode(t, e), pod: pod{uid: "uid", sandbox: "sandbox"}}
	sent := make(chan *task.KillRequest, 1)
	send := func(_ context.Context, r *task.KillRequest) error { sent <- r; return nil }
	if !c.deferSignal(t.Context(), &task.KillRequest{ID: "c", Signal: uint32(unix.SIGTERM)}, send, nil) {
		t.Fatal("the signal is not held")
	}
	for range 3 { // the second question is given up, the third one waits
		select {
		case <-e.asked:
		case <-sent:
			t.Fatal("the signal was delivered during the save")
		}
	}
	e.answers <- &localv1.AskEndResponse{Decision: saved}
	for !c.begin("c") { // until the wait is over
		time.Sleep(time.Millisecond)
	}
	if len(sent) > 0 {
		t.Error("the signal was delivered during the save")
	}
}

// TestHeldAsleep: a pod that sleeps is ended, and not woken, once the agent has had its successors inherit the snapshot
// of its sleep.
func TestHeldAsleep(t *testing.T) {
	for name, tc := range map[string]struct {
		agent *ender
		want  string
	}{
		"saved already": {answering(0, saved), "ends asleep"},
		"saved":         {answering(time.Minute, waiting, saved), "ends asleep"},
		"not saved":     {answering(time.Minute, waiting, signals), "as without an agent"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &deferredSignals{agent: clusterNode(t, tc.agent), pod: pod{uid: "uid", sandbox: "sandbox"}}
			done := make(chan string, 2)
			note := func(what string) func(context.Context, *task.KillRequest) error {
				return func(context.Context, *task.KillRequest) error { done <- what; return nil }
			}
			r := &task.KillRequest{ID: "c", Signal: uint32(unix.SIGTERM)}
			if !c.deferSignal(t.Context(), r, note("as without an agent"), note("ends asleep")) {
				t.Fatal("the signal is not held")
			}
			if got := <-done; got != tc.want {
				t.Errorf("it %s, want %s", got, tc.want)
			}
		})
	}
}

// TestHeldForDeleted: a signal that comes through once its container has ended and is deleted does not keep the pod
// from being saved.
func TestHeldForDeleted(t *testing.T) {
	for name, first := range map[string][]localv1.AskEndResponse_Decision{
		"it is held":         {waiting},
		"the agent is asked": {},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRouterTest(t)
			e := answering(time.Minute, first...)
			x.router.agent = clusterNode(t, e)
			x.create("sandbox", "sandbox", "sandbox", "")
			x.create("app", "container", "sandbox", "")
			c := x.router.pod.c
			c.deferred.pod.uid = "uid"
			c.starter.recent.begin("app", false)
			answered := make(chan error, 1)
			go func() {
				_, err := x.router.Kill(t.Context(), &task.KillRequest{ID: "app", Signal: uint32(unix.SIGTERM)})
				answered <- err
			}()
			<-e.asked
			if len(first) > 0 {
				answered <- <-answered // containerd goes on while the signal is held
			}
			x.remove("app", "")
			e.answers <- &localv1.AskEndResponse{Decision: signals}
			if err := <-answered; err != nil && !isNotFound(err) {
				t.Error(err)
			}
			for !c.deferred.begin("app") { // until the wait is over
				time.Sleep(time.Millisecond)
			}
			if id := c.roster.ending(); id != "" {
				t.Errorf("the pod cannot be saved: container %q was told to end, and is deleted", id)
			}
		})
	}
}

// TestNeverHeld: SIGKILL is never held, nor are signals for other processes than the container's first, nor anything
// outside of a cluster. The agent is not asked.
func TestNeverHeld(t *testing.T) {
	e := answering(0, saved)
	in := clusterNode(t, e)
	out := newAgent(filepath.Join(t.TempDir(), "agent.sock"))
	for name, tc := range map[string]struct {
		agent agent
		uid   string
		r     *task.KillRequest
	}{
		"SIGKILL":    {in, "uid", &task.KillRequest{ID: "c", Signal: uint32(unix.SIGKILL)}},
		"no signal":  {in, "uid", &task.KillRequest{ID: "c"}},
		"exec":       {in, "uid", &task.KillRequest{ID: "c", ExecID: "e", Signal: uint32(unix.SIGTERM)}},
		"no pod":     {in, "", &task.KillRequest{ID: "c", Signal: uint32(unix.SIGTERM)}},
		"no cluster": {out, "uid", &task.KillRequest{ID: "c", Signal: uint32(unix.SIGTERM)}},
	} {
		c := &deferredSignals{agent: tc.agent, pod: pod{uid: tc.uid, sandbox: "sandbox"}}
		if c.deferSignal(t.Context(), tc.r, nil, nil) || len(e.asked) > 0 {
			t.Errorf("%s: the agent was asked", name)
		}
	}
}
