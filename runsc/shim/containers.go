package shim

import (
	"context"
	"errors"
	"sync"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// errKilled is the cause of a start that was given up because its container is to be killed.
var errKilled = errors.New("the container was killed while it started")

// containers is the part of the service that every container gets. gVisor's shim holds a lock for
// as long as a container starts, and the start of a container of a restored pod lasts until the
// image is loaded; so a kill meanwhile gives up the start, instead of waiting for it.
type containers struct {
	extension.TaskServiceExt

	mu       sync.Mutex
	starting map[string]context.CancelCauseFunc // by container id
}

func newContainers(next extension.TaskServiceExt) *containers {
	return &containers{TaskServiceExt: next, starting: make(map[string]context.CancelCauseFunc)}
}

// Start starts a container or, given an exec id, another process in it.
func (c *containers) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	return c.start(ctx, r, c.TaskServiceExt.Start)
}

// start runs f, which starts what r names; Kill of a container ends the context of its start.
func (c *containers) start(ctx context.Context, r *task.StartRequest, f func(context.Context, *task.StartRequest) (*task.StartResponse, error)) (*task.StartResponse, error) {
	if r.ExecID != "" {
		return f(ctx, r)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.mu.Lock()
	c.starting[r.ID] = cancel
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.starting, r.ID)
	}()
	return f(ctx, r)
}

// Kill sends a signal to a container or to a process in it.
func (c *containers) Kill(ctx context.Context, r *task.KillRequest) (*types.Empty, error) {
	if r.ExecID == "" {
		c.mu.Lock()
		if cancel := c.starting[r.ID]; cancel != nil {
			cancel(errKilled)
		}
		c.mu.Unlock()
	}
	return c.TaskServiceExt.Kill(ctx, r)
}
