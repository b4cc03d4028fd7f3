package shim

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"

	"diapause.dev/runsc/sleep"
)

// TestLateOrders: orders to fall asleep and to be up again come on connections of their own. Whichever order they come
// in, a container sleeps only in the round that counts.
func TestLateOrders(t *testing.T) {
	x := &resident{id: "late", io: &task.CreateTaskRequest{}}
	z := &sleeper{all: map[string]*resident{x.id: x}}
	hush := func(round uint64) error {
		return z.step(t.Context(), x, sleep.Order{Verb: sleep.Hush, Round: round})
	}
	up := func(round uint64) {
		t.Helper()
		if err := z.step(t.Context(), x, sleep.Order{Verb: sleep.Up, Round: round}); err != nil {
			t.Error(err)
		}
	}
	wantAsleep := func(want bool, when string) {
		t.Helper()
		if got := z.asleep.Load(); got != want {
			t.Errorf("%s, asleep: %v, want %v", when, got, want)
		}
	}
	up(1)
	if err := hush(1); !errors.Is(err, sleep.ErrUnfit) {
		t.Errorf("hushed in a round that was called off: %v", err)
	}
	wantAsleep(false, "after a round that was called off")
	if err := hush(2); err != nil {
		t.Error(err)
	}
	up(1)
	wantAsleep(true, "after the end of an earlier round")
	up(2)
	wantAsleep(false, "after the end of the round")
	if err := hush(0); err != nil {
		t.Error(err)
	}
	wantAsleep(true, "of a version that does not count")
	up(0)
	wantAsleep(false, "of a version that does not count")
}

// sibling is the shim of another container of a pod. It fails at first.
type sibling struct {
	task.TaskService
	tried int
	got   chan sleep.Order
}

func (s *sibling) Update(_ context.Context, r *task.UpdateTaskRequest) (*types.Empty, error) {
	if s.tried++; s.tried < 2 {
		return nil, errgrpc.ToGRPC(errors.New("slow"))
	}
	o, err := sleep.Parse(r.Annotations[sleep.Annotation])
	s.got <- o
	return &types.Empty{}, err
}

// TestRaise: a shim that does not take the order to be up again gets it again.
func TestRaise(t *testing.T) {
	dir := t.TempDir()
	z := &sleeper{c: &containers{bundle: bundle{"sandbox", filepath.Join(dir, "sandbox")}}, namespace: "k8s.io"}
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	if err := os.WriteFile(filepath.Join(dir, "other", "address"), []byte("unix://"+socket), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	s := &sibling{got: make(chan sleep.Order, 1)}
	task.RegisterTaskService(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(t.Context(), l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	z.round.Store(3)
	z.raise(t.Context(), "other", 3)
	if o := <-s.got; o.Verb != sleep.Up || o.Round != 3 {
		t.Errorf("it got %+v", o)
	}
}
