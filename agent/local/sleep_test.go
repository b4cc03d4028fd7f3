package local

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cri"
	"diapause.dev/runsc/sleep"
)

// Find implements sleep.Runtime.
func (r *rig) Find(context.Context, string) (*cri.Pod, error) {
	return &cri.Pod{ID: "sandbox", Namespace: "default", Name: "pod", Runtime: cri.RuntimeType}, nil
}

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
	if since, ok := r.Sleeps.AsleepPod("uid"); !ok || !since.Equal(time.Unix(5, 0)) {
		t.Errorf("asleep since %v, %v", since, ok)
	}
	s := &service{Config: r.Config}
	_, err := s.Wake(t.Context(), &localv1.WakeRequest{Target: "pod"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "wake pod default/pod") {
		t.Errorf("error %v", err)
	}
	if err := sleep.Unmark(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Sleeps.Asleep("sandbox"); ok {
		t.Error("it sleeps without a mark")
	}
}
