package shim

import (
	"context"
	"errors"
	"sync"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/log"
)

// If containerd ends while it creates or starts the containers of a pod that is restored, the sandbox is ended. To the
// next containerd a container whose start failed would be one that ran and exited, so that a pod with the restart
// policy Never would have failed. It never ran, and has to stay one that was never started: then the agent sees to it
// that the kubelet restores the pod in another sandbox (agent/restore/interrupted.go).
//
//   - If a start was interrupted, the shim removes its container before it answers the next containerd's first question
//     (Connect). That containerd then finds a shim without a container, and ends it (core/runtime/v2/shim_load.go).
//   - A container that was created and not started is killed by the next containerd, which waits for its exit and
//     removes it (internal/cri/server/restart.go, loadContainer). It takes it for exited only if an event says so.
//     So there is none.

// settleLimit bounds how long a containerd that has just started waits for the end of an interrupted start. It waits
// five seconds for the answer (io.containerd.timeout.shim.load), and gives up the shim otherwise.
const settleLimit = 4 * time.Second

// interrupted reports whether containerd has ended while it started a container of a pod that is not restored yet. The
// caller holds c.mu.
func (c *containers) interrupted(s *starting) bool {
	return errors.Is(s.asked.Err(), context.Canceled) && c.incomplete()
}

// discardUnasked removes a container whose start was interrupted. Of another container it removes nothing.
func (c *containers) discardUnasked(ctx context.Context, id string) {
	c.mu.Lock()
	s := c.unasked[id]
	c.mu.Unlock()
	if s == nil {
		return
	}
	if err := c.discard(ctx, id); err != nil {
		log.L.WithError(err).Warnf("container %s, whose start was interrupted, is not removed", id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unasked, id)
	close(s.over)
}

// Connect returns the ids of the shim's process and the container's. A containerd that has just started asks this
// first. If it has interrupted a start of the container, Connect waits until the container is removed.
func (c *containers) Connect(ctx context.Context, r *task.ConnectRequest) (*task.ConnectResponse, error) {
	c.settle(ctx, r.ID)
	return c.TaskServiceExt.Connect(ctx, r)
}

// settle waits for the end of an interrupted start, for at most settleLimit.
func (c *containers) settle(ctx context.Context, id string) {
	c.mu.Lock()
	s := c.unasked[id]
	if begun := c.starting[id]; begun != nil && c.interrupted(begun) {
		s = begun
	}
	c.mu.Unlock()
	if s == nil {
		return
	}
	select {
	case <-s.over:
	case <-time.After(settleLimit):
		log.L.Warnf("container %s, whose start was interrupted, is not removed after %v", id, settleLimit)
	case <-ctx.Done():
	}
}

// unstarted has the ids of containers that were killed before their start, in a sandbox that was not restored.
var unstarted sync.Map

// isExitOfUnstarted reports whether an event is the exit of such a container.
func isExitOfUnstarted(event events.Event) bool {
	exit, ok := event.(*eventtypes.TaskExit)
	if !ok {
		return false
	}
	_, ok = unstarted.Load(exit.ContainerID)
	return ok
}
