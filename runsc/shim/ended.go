package shim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// ended is the service of a container that had ended when the pod's snapshot was taken, for example an init
// container. When it is started, it exits as it did then, and nothing runs. GVisor must not see it, because gVisor
// counts the containers that are started in a restored sandbox.
//
// The service itself answers what containerd asks of a container that has exited. The service behind it knows no such
// container, and refuses the rest.
type ended struct {
	extension.TaskServiceExt
	bundle string
	status uint32

	once sync.Once
	over chan struct{} // closed when the container is started
	at   time.Time     // when it was started
}

func newEnded(next extension.TaskServiceExt, bundle string, status uint32) *ended {
	return &ended{TaskServiceExt: next, bundle: bundle, status: status, over: make(chan struct{})}
}

// endedIn reports whether the container with that name must not run again, and its exit status. Call it once for each
// container: a container that is started again does run.
func (b bundle) endedIn(name string) (status uint32, ended bool, err error) {
	o, ok := b.ordered()
	if !ok || name == "" || !slices.Contains(o.Ended, name) {
		return 0, false, nil
	}
	n, err := b.note(endedPrefix, name)
	return uint32(o.ExitCodes[name]), n > 0, err
}

// Create implements task.TaskService.
func (e *ended) Create(_ context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	slog.Info("the container has ended in the snapshot, and is not run again", "container", r.ID, "status", e.status)
	return &task.CreateTaskResponse{Pid: e.pid()}, nil
}

// pid returns the process id that containerd gets for the container, because it wants one.
func (e *ended) pid() uint32 { return uint32(os.Getpid()) }

// Start implements task.TaskService.
func (e *ended) Start(_ context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	if r.ExecID != "" {
		return nil, e.gone(r.ID)
	}
	e.end()
	return &task.StartResponse{Pid: e.pid()}, nil
}

func (e *ended) end() {
	e.once.Do(func() {
		e.at = time.Now()
		close(e.over)
	})
}

func (e *ended) gone(id string) error {
	return fmt.Errorf("container %s has ended: %w", id, errdefs.ErrNotFound)
}

// State implements task.TaskService.
func (e *ended) State(_ context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	if r.ExecID != "" {
		return nil, e.gone(r.ID)
	}
	resp := &task.StateResponse{ID: r.ID, Bundle: e.bundle, Pid: e.pid(), Status: tasktypes.Status_CREATED}
	select {
	case <-e.over:
		resp.Status, resp.ExitStatus, resp.ExitedAt = tasktypes.Status_STOPPED, e.status, protobuf.ToTimestamp(e.at)
	default:
	}
	return resp, nil
}

// Wait implements task.TaskService.
func (e *ended) Wait(ctx context.Context, _ *task.WaitRequest) (*task.WaitResponse, error) {
	select {
	case <-e.over:
		return &task.WaitResponse{ExitStatus: e.status, ExitedAt: protobuf.ToTimestamp(e.at)}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Kill implements task.TaskService. It ends a container that has not been started.
func (e *ended) Kill(_ context.Context, r *task.KillRequest) (*types.Empty, error) {
	select {
	case <-e.over:
		return nil, e.gone(r.ID)
	default:
		e.end()
		return &types.Empty{}, nil
	}
}

// Delete implements task.TaskService.
func (e *ended) Delete(_ context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if r.ExecID != "" {
		return nil, e.gone(r.ID)
	}
	e.end()
	return &task.DeleteResponse{Pid: e.pid(), ExitStatus: e.status, ExitedAt: protobuf.ToTimestamp(e.at)}, nil
}

// Connect implements task.TaskService.
func (e *ended) Connect(context.Context, *task.ConnectRequest) (*task.ConnectResponse, error) {
	return &task.ConnectResponse{ShimPid: e.pid(), TaskPid: e.pid()}, nil
}

// Pids implements task.TaskService.
func (e *ended) Pids(context.Context, *task.PidsRequest) (*task.PidsResponse, error) {
	return &task.PidsResponse{}, nil
}

// Stats implements task.TaskService.
func (e *ended) Stats(_ context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	return nil, e.gone(r.ID)
}

// CloseIO implements task.TaskService.
func (e *ended) CloseIO(context.Context, *task.CloseIORequest) (*types.Empty, error) {
	return &types.Empty{}, nil
}
