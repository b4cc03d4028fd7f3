package shim

import (
	"context"
	"testing"

	tasktypes "github.com/containerd/containerd/api/types/task"
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
