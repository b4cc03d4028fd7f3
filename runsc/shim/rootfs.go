package shim

import (
	"context"
	"errors"
	"fmt"
	"os"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/log"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	pb "gvisor.dev/gvisor/pkg/shim/v1/taskserver/task_server_go_proto"
)

// createRestored creates the sandbox container of a pod whose root file systems are restored: runsc
// must know before there is a sandbox. The pod's containers then start as they always do, each with
// the files that were saved of the one of its name.
func (s *sandbox) createRestored(ctx context.Context, r *task.CreateTaskRequest, o order, path string) (*task.CreateTaskResponse, error) {
	log.L.Infof("root file systems of sandbox %s are to be restored, request %q", r.ID, o.Request)
	if err := s.bundle.order(o); err != nil {
		return nil, err
	}
	created, err := s.create(ctx, r, func(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
		return s.TaskServiceExt.CreateWithFSRestore(ctx, &extension.CreateWithFSRestoreRequest{
			Create: r, Conf: extension.FSRestoreConfig{ImagePath: path},
		})
	})
	if err != nil {
		err = s.lost(ctx, r.ID, err)
		s.reports.Wait() // there is no container whose removal would
	}
	return created, err
}

// createAgain creates a sandbox anew that was created before the agent answered, from the spec that it
// had then: gVisor changes that.
func (s *sandbox) createAgain(ctx context.Context, r *task.CreateTaskRequest, spec []byte, a answer) (*task.CreateTaskResponse, error) {
	s.discard(ctx, r.ID)
	if err := os.WriteFile(specPath(r.Bundle), spec, 0o600); err != nil {
		return nil, fmt.Errorf("write OCI spec: %w", err)
	}
	return s.createDecided(ctx, r, a)
}

// part returns the name by which a container's progress is noted. A container of a restored sandbox
// that is started again has another id, and counts once.
func (c *containers) part(o order, id string) string {
	if o.Rootfs && c.pod.container != "" {
		return c.pod.container
	}
	return id
}

// failed tells the agent that a container did not start in a sandbox whose root file systems are
// restored, as long as the pod is not. The sandbox stays: what runs may be tried again.
func (c *containers) failed(ctx context.Context, id string, err error) {
	o, ok := c.bundle.ordered()
	if !ok || !o.Rootfs || errors.Is(err, errKilled) {
		return
	}
	if n, unknown := c.bundle.noted(startedPrefix); unknown == nil && n < o.Containers {
		c.report(ctx, c.reportOf(o, fmt.Errorf("start container %s: %w", id, untraced(err))))
	}
}

// awaitFiles waits, beside the running container, until its root file system is there or the container
// is removed. With the last one of the pod the agent is told.
func (c *containers) awaitFiles(ctx context.Context, o order, id string) {
	server := runsc.NewGvisorTaskServer(c.TaskServiceExt)
	if server == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.mu.Lock()
	c.loading[id] = cancel
	c.mu.Unlock()
	c.reports.Add(1)
	go func() {
		defer c.reports.Done()
		defer c.giveUpFiles(id)
		// A container of which nothing was saved is an error here; of reads that failed the agent
		// knows by itself.
		if _, err := server.Wait(ctx, &pb.WaitRequest{Id: id, WaitType: pb.WaitRequest_FSRESTORE}); err != nil {
			log.L.WithError(err).Infof("nothing is restored of container %s any more", id)
		}
		n, err := c.bundle.note(loadedPrefix, c.part(o, id))
		if err == nil && n == o.Containers {
			err = c.reportLoaded(ctx, o)
		}
		if err != nil {
			log.L.WithError(err).Warnf("the agent was not told that sandbox %s has all its files", c.bundle.id)
		}
	}()
}

// reportLoaded tells the agent that all containers have all their files. An agent that is away is
// waited for until ctx is done.
func (c *containers) reportLoaded(ctx context.Context, o order) error {
	req := c.reportOf(o, nil)
	req.Complete, req.Loaded = false, true
	for {
		err := c.agent.report(context.WithoutCancel(ctx), req)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// giveUpFiles ends the wait for a container's files.
func (c *containers) giveUpFiles(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.loading[id]; cancel != nil {
		cancel()
		delete(c.loading, id)
	}
}
