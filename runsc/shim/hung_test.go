package shim

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// locked is a service that answers nothing, whatever becomes of the request, until it is unlocked.
type locked struct {
	extension.TaskServiceExt
	unlocked chan struct{}
	asked    atomic.Int32
}

func (l *locked) State(context.Context, *task.StateRequest) (*task.StateResponse, error) {
	l.asked.Add(1)
	<-l.unlocked
	return &task.StateResponse{Status: tasktypes.Status_STOPPED}, nil
}

func (l *locked) Kill(context.Context, *task.KillRequest) (*types.Empty, error) {
	<-l.unlocked
	return &types.Empty{}, nil
}

// TestHungState asks for the state of a container again and again while gVisor's shim holds its lock.
func TestHungState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &locked{unlocked: make(chan struct{})}
		c := testContainers(t, agent{}, pod{}, l)
		ask := func() (*task.StateResponse, error) { return c.State(t.Context(), &task.StateRequest{ID: "a"}) }
		for range 3 {
			if _, err := ask(); !errors.Is(err, errHung) {
				t.Errorf("state: %v", err)
			}
		}
		if n := l.asked.Load(); n != 1 {
			t.Errorf("%d questions wait for the lock", n)
		}
		close(l.unlocked)
		synctest.Wait()
		if got, err := ask(); err != nil || got.Status != tasktypes.Status_STOPPED {
			t.Errorf("once unlocked: %v, %v", got, err)
		}
	})
}

// TestHungSignal sends signals to a container while gVisor's shim holds its lock.
func TestHungSignal(t *testing.T) {
	const brief = time.Second
	for _, tt := range []struct {
		signal unix.Signal
		limit  time.Duration // of whoever asks
		waited time.Duration
		ok     bool
	}{
		{unix.SIGTERM, time.Minute, forSignal.wait, true}, // SIGKILL will follow
		{unix.SIGTERM, brief, brief, false},
		{unix.SIGHUP, time.Minute, forSignal.wait, false},
		{unix.SIGKILL, time.Minute, forKill.wait, true}, // the sandbox, which is not there, is ended
		{unix.SIGKILL, brief, forKill.wait, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &locked{unlocked: make(chan struct{})}
			c := testContainers(t, agent{}, pod{}, l)
			c.roster.add("a", "")
			c.starter.recent.begin("a", false)
			c.starter.recent.end("a")
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
			defer cancel()
			_, err := c.Kill(ctx, &task.KillRequest{ID: "a", Signal: uint32(tt.signal)})
			if (err == nil) != tt.ok || (err != nil && !errors.Is(err, errHung) && ctx.Err() == nil) {
				t.Errorf("%v: %v", tt.signal, err)
			}
			if took := time.Since(begun); took != tt.waited { // by the test's clock
				t.Errorf("%v: waited %v", tt.signal, took)
			}
			close(l.unlocked)
		})
	}
}

// TestHungStateKnown: of a container that cannot be asked about, the shim says what it knows.
func TestHungStateKnown(t *testing.T) {
	c := testContainers(t, agent{}, pod{}, nil)
	z := newSleepService(t.Context(), nil, c, nil)
	z.created(&resident{id: "a", io: &task.CreateTaskRequest{Stdout: "out"}}, 7, true)
	for _, step := range []struct {
		do   func()
		want tasktypes.Status
	}{
		{func() {}, tasktypes.Status_CREATED},
		{func() { c.starter.recent.begin("a", false) }, tasktypes.Status_CREATED},
		{func() { c.starter.recent.end("a") }, tasktypes.Status_RUNNING},
		{func() { z.suspended.Store(true) }, tasktypes.Status_PAUSED},
		{func() { z.suspended.Store(false) }, tasktypes.Status_RUNNING},
	} {
		step.do()
		got, err := z.stateUnanswered("a", "")
		if err != nil || got.Status != step.want || got.Pid != 7 || got.Stdout != "out" {
			t.Errorf("%v, %v, want %v", got, err, step.want)
		}
	}
	z.all["a"].execs = map[string]added{"exec": {io: &task.ExecProcessRequest{Stdout: "out"}}}
	if got, err := z.stateUnanswered("a", "exec"); err != nil || got.Status != tasktypes.Status_CREATED ||
		got.ExecID != "exec" || got.Stdout != "out" {
		t.Errorf("a process that starts: %v, %v", got, err)
	}
	if _, err := z.stateUnanswered("a", "ended"); !errors.Is(err, errHung) {
		t.Errorf("a process that is not known: %v", err)
	}
	pids, err := z.pidsUnanswered("a")
	if err != nil || len(pids.Processes) != 1 || pids.Processes[0].Pid != 7 {
		t.Errorf("its processes: %v, %v", pids, err)
	}
	_, stateErr := z.stateUnanswered("b", "")
	_, pidsErr := z.pidsUnanswered("b")
	if !errors.Is(stateErr, errHung) || !errors.Is(pidsErr, errHung) {
		t.Errorf("an unknown container: %v, %v", stateErr, pidsErr)
	}
}
