package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/log"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	pb "gvisor.dev/gvisor/pkg/shim/v1/taskserver/task_server_go_proto"
)

// createRestored creates the sandbox container of a pod whose root file systems are restored. Runsc must know this
// when it creates the sandbox. The pod's containers then start as usual, each with the saved files of the container
// with its name.
func (s *sandbox) createRestored(ctx context.Context, r *task.CreateTaskRequest, o order,
	path string,
) (*task.CreateTaskResponse, error) {
	log.L.Infof("root file systems of sandbox %s are to be restored, request %q", r.ID, o.Request)
	if err := s.bundle.order(o); err != nil {
		return nil, err
	}
	created, err := s.create(ctx, r,
		func(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
			return s.TaskServiceExt.CreateWithFSRestore(ctx, &extension.CreateWithFSRestoreRequest{
				Create: r, Conf: extension.FSRestoreConfig{ImagePath: path},
			})
		})
	if err != nil {
		err = s.lost(ctx, r.ID, err)
		s.pending.of(r.ID).Wait() // there is no container, and so no removal, to wait for them
	}
	return created, err
}

// createAgain creates a sandbox a second time, because the agent answered only after the first. It uses the original
// spec: gVisor has changed the spec since.
func (s *sandbox) createAgain(ctx context.Context, r *task.CreateTaskRequest, spec []byte,
	a answer,
) (*task.CreateTaskResponse, error) {
	if err := withdraw(ctx, s.containers, r); err != nil {
		return nil, err
	}
	if err := os.WriteFile(specPath(r.Bundle), spec, 0o600); err != nil {
		return nil, fmt.Errorf("write OCI spec: %w", err)
	}
	return s.createDecided(ctx, r, a)
}

// withdraw has runsc remove a created sandbox container that is created again. GVisor's shim is not asked to: when it
// deletes the only container that it has, it gives up what it serves terminals with, and the pod's containers could
// have none.
func withdraw(ctx context.Context, c *containers, r *task.CreateTaskRequest) error {
	ctx, cancel := context.WithTimeout(ctx, discardLimit)
	defer cancel()
	err := c.force(ctx, r.ID)
	if err == nil {
		err = mount.UnmountAll(filepath.Join(r.Bundle, "rootfs"), 0)
	}
	if err != nil {
		return fmt.Errorf("remove sandbox %s, to create it as the agent wants it: %w", r.ID, err)
	}
	return nil
}

// part returns the name under which a container's progress is recorded. With root file systems alone, a container
// that is started again has a new id but must count only once, so its name counts.
func (c *containers) part(o order, id string) string {
	if name := c.roster.name(id); o.Rootfs && name != "" {
		return name
	}
	return id
}

// failed reports to the agent that a container did not start in a sandbox whose root file systems are restored,
// unless the pod is restored already. The sandbox stays: the start may be tried again.
func (c *containers) failed(ctx context.Context, id string, err error) {
	o, ok := c.bundle.ordered()
	if !ok || !o.Rootfs || errors.Is(err, errKilled) {
		return
	}
	if n, unknown := c.bundle.noted(startedPrefix); unknown == nil && n < o.Containers {
		c.report(ctx, id, c.reportOf(o, fmt.Errorf("start container %s: %w", id, untraced(err))))
	}
}

// awaitFiles waits in the background until a running container's root file system is loaded, or the container is
// removed. When the last container of the pod has its files, it tells the agent.
func (c *containers) awaitFiles(ctx context.Context, o order, id string) {
	server := runsc.NewGvisorTaskServer(c.TaskServiceExt)
	if server == nil {
		return
	}
	ctx = c.while(ctx, id, c.loading)
	c.pending.of(id).Go(func() {
		defer c.giveUp(id, c.loading)
		// If nothing was saved of the container, that is an error here. If reads failed, the agent knows already.
		if _, err := server.Wait(ctx, &pb.WaitRequest{Id: id, WaitType: pb.WaitRequest_FSRESTORE}); err != nil {
			log.L.WithError(err).Infof("nothing is restored of container %s any longer", id)
		}
		n, err := c.bundle.note(loadedPrefix, c.part(o, id))
		if err == nil && n == o.Containers {
			err = c.reportLoaded(ctx, o)
		}
		if err != nil {
			log.L.WithError(err).Warnf("the agent was not told that sandbox %s has all its files", c.bundle.id)
		}
	})
}

// reportLoaded tells the agent that all containers have all their files. While the agent is away, it retries until
// ctx is done.
func (c *containers) reportLoaded(ctx context.Context, o order) error {
	req := c.reportOf(o, nil)
	req.Complete, req.Loaded = false, true
	return c.reportUntil(ctx, req)
}
