package shim

import (
	"context"
	"errors"
	"testing"

	"diapause.dev/runsc/sleep"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// TestQuietExits takes the one exit that is expected of a container, and no other one.
func TestQuietExits(t *testing.T) {
	var q quietExits
	if q.take("a") {
		t.Error("an exit that nobody expects is taken")
	}
	q.expect("a")
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.settled(done, "a"); err == nil {
		t.Error("settled before the exit")
	}
	if q.take("b") {
		t.Error("the exit of another container is taken")
	}
	if !q.take("a") || q.take("a") {
		t.Error("want the first exit taken, and not the second")
	}
	if err := q.settled(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	q.expect("a")
	q.forget("a")
	if q.take("a") {
		t.Error("an exit is taken that is no longer expected")
	}
}

// TestFallingAsleepRuns: a pod that is falling asleep counts as running while it is paused for that, and no other does.
func TestFallingAsleepRuns(t *testing.T) {
	z := new(sleeper)
	for _, x := range []struct {
		watched  bool
		is, want tasktypes.Status
	}{
		{false, tasktypes.Status_PAUSED, tasktypes.Status_PAUSED},
		{true, tasktypes.Status_PAUSED, tasktypes.Status_RUNNING},
		{true, tasktypes.Status_STOPPED, tasktypes.Status_STOPPED},
	} {
		z.watched.Store(x.watched)
		if got := z.statusOf(x.is); got != x.want {
			t.Errorf("watched %v, %v: %v", x.watched, x.is, got)
		}
	}
}

// TestEndedMeanwhile: a container that has ended in its sleep has, even if the shim of the sandbox could not say so.
func TestEndedMeanwhile(t *testing.T) {
	for _, dead := range []bool{true, false} {
		x := &resident{id: "container", dead: dead}
		z := &sleeper{c: &containers{bundle: bundle{"sandbox", t.TempDir()}}, all: map[string]*resident{x.id: x}}
		if ended, err := z.finished(t.Context(), x.id, 137); ended != dead || (err == nil) != dead {
			t.Errorf("dead: %v, ended: %v, %v", dead, ended, err)
		}
	}
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
	z := &sleeper{TaskServiceExt: killable{}, all: map[string]*resident{x.id: x}}
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
