// Package answered answers containerd for processes that it adds to containers and that are not run: the kubelet's
// probes and hooks.
package answered

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
)

// Exec is a process that is answered for, as if it had run, and ended at once. Its methods may be called concurrently.
type Exec struct {
	stdout, stderr string
	status         uint32        // its exit status
	once           sync.Once     // closes done
	done           chan struct{} // closed when containerd has asked for its start: it has ended then, too
	at             time.Time     // of its end; set before done is closed
}

// most bounds the processes of a pod that are answered for and not deleted yet. Containerd deletes each at its end.
const most = 1024

// Execs are the processes that are answered for, and not deleted. The zero value has none. Its methods may be called
// concurrently.
type Execs struct {
	mu  sync.Mutex
	all map[execName]*Exec
}

// execName names a process that was added to a container.
type execName struct{ container, exec string }

// Of returns a process that is answered for, or nil.
func (a *Execs) Of(container, exec string) *Exec {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[execName{container, exec}]
}

// Answer answers for a process that is to be added, with an exit status.
func (a *Execs) Answer(r *task.ExecProcessRequest, status uint32) (*types.Empty, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) >= most {
		return nil, errgrpc.ToGRPC(fmt.Errorf("exec %s in container %s: %d probes are in progress: %w", r.ExecID, r.ID,
			len(a.all), errdefs.ErrResourceExhausted))
	}
	if a.all == nil {
		a.all = make(map[execName]*Exec)
	}
	a.all[execName{r.ID, r.ExecID}] = &Exec{
		stdout: r.Stdout, stderr: r.Stderr, status: status, done: make(chan struct{}),
	}
	return &types.Empty{}, nil
}

// Forget forgets a process, as containerd deletes it.
func (a *Execs) Forget(container, exec string) *task.DeleteResponse {
	a.mu.Lock()
	defer a.mu.Unlock()
	resp := &task.DeleteResponse{Pid: 1, ExitedAt: protobuf.ToTimestamp(time.Now())}
	name := execName{container, exec}
	if p := a.all[name]; p != nil {
		resp.ExitStatus = p.status
	}
	delete(a.all, name)
	return resp
}

// ForgetAll forgets the processes of a container that is deleted.
func (a *Execs) ForgetAll(container string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.all, func(n execName, _ *Exec) bool { return n.container == container })
}

// Start ends the process: it has no output.
func (p *Exec) Start(ctx context.Context) (*task.StartResponse, error) {
	err := errors.Join(closePipe(ctx, p.stdout), closePipe(ctx, p.stderr))
	if err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("a probe that is not run: %w", err))
	}
	p.once.Do(func() {
		p.at = time.Now()
		close(p.done)
	})
	return &task.StartResponse{Pid: 1}, nil
}

// Wait waits for the end of the process.
func (p *Exec) Wait(ctx context.Context) (*task.WaitResponse, error) {
	select {
	case <-p.done:
		return &task.WaitResponse{ExitStatus: p.status, ExitedAt: protobuf.ToTimestamp(p.at)}, nil
	case <-ctx.Done():
		return nil, errgrpc.ToGRPC(context.Cause(ctx))
	}
}

// State returns the state of the process.
func (p *Exec) State(r *task.StateRequest) *task.StateResponse {
	resp := &task.StateResponse{ID: r.ID, ExecID: r.ExecID, Pid: 1, Stdout: p.stdout, Stderr: p.stderr}
	select {
	case <-p.done:
		resp.Status, resp.ExitStatus, resp.ExitedAt = tasktypes.Status_STOPPED, p.status, protobuf.ToTimestamp(p.at)
	default:
		resp.Status = tasktypes.Status_CREATED
	}
	return resp
}

// ErrOver refuses a signal for a process that has ended.
var ErrOver = fmt.Errorf("the probe has ended: %w", errdefs.ErrNotFound)

// closePipeLimit bounds how long containerd may take to open its end of a pipe.
const closePipeLimit = 2 * time.Second

// closePipe opens a pipe for writing and closes it, so that who reads it sees its end. A name may be empty.
func closePipe(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, closePipeLimit)
	defer cancel()
	for {
		f, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, unix.ENXIO) { // nobody reads it yet
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("no process reads %s: %w", name, context.Cause(ctx))
		}
	}
}
