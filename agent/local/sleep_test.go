package local

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
)

// Find implements sleep.Runtime.
func (r *rig) Find(context.Context, string) (*cri.Pod, error) {
	return &cri.Pod{ID: "sandbox", Namespace: "default", Name: "pod", Runtime: cri.RuntimeType}, nil
}

// Restless implements sleep.Runtime.
func (r *rig) Restless(context.Context, string) error { return nil }

// OrderSleep implements sleep.Runtime: the pod refuses to be woken.
func (r *rig) OrderSleep(context.Context, string, sleep.Order) error {
	return fmt.Errorf("wake: %w", sleep.ErrUnfit)
}

// TestWakeFails asks for the wake of a pod that sleeps and cannot be woken.
func TestWakeFails(t *testing.T) {
	r := newRig(t, nil)
	dir := r.requests.Path("request")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (sleep.Mark{Sandbox: "sandbox", UID: "uid", Since: time.Unix(5, 0)}).Write(dir); err != nil {
		t.Fatal(err)
	}
	if m, ok := r.Sleeps.Waker.AsleepPod("uid"); !ok || !m.Since.Equal(time.Unix(5, 0)) {
		t.Errorf("asleep: %+v, %v", m, ok)
	}
	s := &service{Config: r.Config}
	_, err := s.Wake(t.Context(), &localv1.WakeRequest{Target: "pod"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "wake pod default/pod") {
		t.Errorf("error %v", err)
	}
	if err := sleep.Unmark(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Sleeps.Waker.Asleep("sandbox"); ok {
		t.Error("it sleeps without a mark")
	}
}

// TestAskWake: a pod may be woken once there is memory for it. Meanwhile "top" says what it waits for.
func TestAskWake(t *testing.T) {
	r := newRig(t, nil)
	r.save(t, snapshot.Meta{Memory: 100 << 20})
	pod := snapshot.PodRef{Namespace: "n", Name: "p", UID: "uid"}
	request, dir, err := r.Wakes.PrepareWake(t.Context(), snapshots.ID{Key: saved}, pod, "sandbox")
	if err != nil {
		t.Fatal(err)
	}
	if err := (sleep.Mark{Sandbox: "sandbox", UID: "uid", Since: time.Unix(5, 0)}).Write(dir); err != nil {
		t.Fatal(err)
	}
	ask := func() *localv1.AskWakeResponse {
		t.Helper()
		resp, err := r.shim.AskWake(t.Context(), &localv1.AskWakeRequest{
			Request: request, SandboxId: "sandbox", Room: math.MaxInt64, Waited: durationpb.New(time.Second),
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if resp := ask(); resp.Decision != localv1.AskWakeResponse_WAIT || !strings.Contains(resp.Reason, "116 MiB") {
		t.Errorf("without memory: %v", resp)
	}
	top, err := r.agent.Top(t.Context(), &localv1.TopRequest{})
	if err != nil || !strings.Contains(top.Sandboxes[0].Request, "116 MiB") || top.Sandboxes[0].Asleep == nil {
		t.Errorf("top shows %v, %v", top, err)
	}
	r.free.Store(1 << 30)
	for range 2 { // the first answer may be lost
		if resp := ask(); resp.Decision != localv1.AskWakeResponse_WAKE {
			t.Errorf("with memory: %v", resp)
		}
	}
	r.free.Store(0)
	resp, err := r.shim.AskWake(t.Context(), &localv1.AskWakeRequest{Request: "0000000000000000"})
	if err != nil || resp.Decision != localv1.AskWakeResponse_WAKE {
		t.Errorf("a request that is not known: %v, %v", resp, err)
	}
}
