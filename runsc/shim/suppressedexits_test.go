package shim

import (
	"context"
	"errors"
	"testing"
	"time"

	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/sleep"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// TestQuietExits takes the one exit that is expected of a container, and no other one.
func TestQuietExits(t *testing.T) {
	var q suppressedExits
	if q.consume("a") {
		t.Error("an exit that nobody expects is taken")
	}
	q.suppress("a")
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.await(done, "a"); err == nil {
		t.Error("settled before the exit")
	}
	if q.consume("b") {
		t.Error("the exit of another container is taken")
	}
	if !q.consume("a") || q.consume("a") {
		t.Error("want the first exit taken, and not the second")
	}
	if err := q.await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	q.suppress("a")
	q.forget("a")
	if q.consume("a") {
		t.Error("an exit is taken that is no longer expected")
	}
}

// pausable is a sandbox that does what its lease says.
type pausable struct{}

func (pausable) Pause(context.Context) error  { return nil }
func (pausable) Resume(context.Context) error { return nil }
func (pausable) Kill() error                  { return nil }

// TestLeasedRuns: a sandbox that is paused by a lease counts as running, and no other does.
func TestLeasedRuns(t *testing.T) {
	l := lease.New(pausable{}, func(string, error) {})
	t.Cleanup(l.Close)
	z := newSleepService(t.Context(), nil, testContainers(t, agent{}, pod{}, nil), &sandbox{lease: l})
	want := func(is, want tasktypes.Status) {
		t.Helper()
		if got := z.statusOf(is); got != want {
			t.Errorf("%v counts as %v, want %v", is, got, want)
		}
	}
	want(tasktypes.Status_PAUSED, tasktypes.Status_PAUSED)
	if err := l.Do(t.Context(), lease.Request{Verb: lease.Pause, Holder: "a", For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	want(tasktypes.Status_PAUSED, tasktypes.Status_RUNNING)
	want(tasktypes.Status_STOPPED, tasktypes.Status_STOPPED)
	if err := l.Break(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(tasktypes.Status_PAUSED, tasktypes.Status_PAUSED)
}

// killable takes every signal.
type killable struct{ extension.TaskServiceExt }

func (killable) Kill(context.Context, *task.KillRequest) (*types.Empty, error) {
	return &types.Empty{}, nil
}

// TestToldToEnd: a container that was told to end while its pod falls asleep keeps it awake. Its end, which comes only
// when the pod runs on, would be lost.
func TestToldToEnd(t *testing.T) {
	x := &resident{id: "container", io: &task.CreateTaskRequest{}}
	c := testContainers(t, agent{}, pod{}, killable{})
	c.roster.add(x.id, "")
	z := newSleepService(t.Context(), c, c, nil)
	z.all[x.id] = x
	for _, r := range []*task.KillRequest{
		{ID: x.id, Signal: uint32(unix.SIGHUP)}, {ID: x.id, ExecID: "exec", Signal: uint32(unix.SIGKILL)},
	} {
		if _, err := z.kill(t.Context(), r); err != nil || z.fit(x) != nil {
			t.Errorf("signal %d: %v, %v", r.Signal, err, z.fit(x))
		}
	}
	if _, err := z.kill(t.Context(), &task.KillRequest{ID: x.id, Signal: uint32(unix.SIGTERM)}); err != nil {
		t.Fatal(err)
	}
	if err := z.fit(x); !errors.Is(err, sleep.ErrUnfit) {
		t.Errorf("it falls asleep: %v", err)
	}
}
