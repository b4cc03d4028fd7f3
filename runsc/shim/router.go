package shim

import (
	"context"
	"fmt"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// router is the service of the whole process. It passes each request on to the service of its container. The containers
// of a pod share one, except for those that had ended in the pod's snapshot.
type router struct {
	extension.TaskServiceExt // gVisor's. It answers for containers that the process does not serve
	process                  *process
	agent                    agent

	registry
	kills oomKills
}

func newRouter(p *process, a agent, next extension.TaskServiceExt) *router {
	return &router{TaskServiceExt: next, process: p, agent: a, registry: registry{all: make(map[string]served)}}
}

// of returns the service of a container.
func (t *router) of(id string) extension.TaskServiceExt {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.all[id]; ok {
		return s.TaskServiceExt
	}
	return t.TaskServiceExt
}

// open returns the service of a container that is about to be created.
func (t *router) open(ctx context.Context, r *task.CreateTaskRequest) (extension.TaskServiceExt, error) {
	p, err := readPod(r.Bundle)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.all[r.ID]; ok {
		return nil, fmt.Errorf("container %s: %w", r.ID, errdefs.ErrAlreadyExists)
	}
	service, err := t.serviceFor(ctx, r, p)
	if err != nil {
		return nil, err
	}
	t.all[r.ID] = served{service, r.Bundle}
	return service, nil
}

// serviceFor returns the service of a container that is about to be created. The caller holds t.mu.
func (t *router) serviceFor(ctx context.Context, r *task.CreateTaskRequest, p pod) (extension.TaskServiceExt, error) {
	switch {
	case p.sandbox == "":
		base := newContainers(t.process, t.agent, p, r.Bundle, t.TaskServiceExt)
		return newSleepService(ctx, base, base, nil), nil
	case p.isSandbox:
		t.process.translateExits(t.agent.stoppedMarker(p.sandbox))
		base := newContainers(t.process, t.agent, p, r.Bundle, t.TaskServiceExt)
		s := newSandbox(ctx, base)
		t.pod = newSleepService(ctx, s, base, s)
		return t.pod, nil
	case t.pod == nil || t.pod.c.bundle.id != p.sandbox:
		return nil, fmt.Errorf("container %s: this shim does not serve its sandbox %s: %w", r.ID, p.sandbox,
			errdefs.ErrFailedPrecondition)
	}
	status, over, err := t.pod.c.bundle.endedIn(p.container)
	if over {
		return newEnded(t.TaskServiceExt, r.Bundle, status), nil
	}
	return t.pod, err
}

// forget forgets a container that is deleted.
func (t *router) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, id)
	t.kills.forget(id)
}

// Create implements task.TaskService.
func (t *router) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	service, err := t.open(ctx, r)
	if err != nil {
		return nil, err
	}
	t.kills.begin(r.ID)
	resp, err := service.Create(ctx, r)
	switch {
	case err != nil:
		t.forget(r.ID)
	case !t.isMember(r.ID):
		t.kills.countIn(int(resp.Pid))
	}
	return resp, err
}

// Delete implements task.TaskService.
func (t *router) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	resp, err := t.of(r.ID).Delete(ctx, r)
	if r.ExecID == "" && (err == nil || isNotFound(err)) {
		t.forget(r.ID)
	}
	return resp, err
}

// Shutdown implements task.TaskService. Without an error the process ends. Containerd asks for it after each container
// that it has deleted, and the last one counts.
func (t *router) Shutdown(_ context.Context, r *task.ShutdownRequest) (*types.Empty, error) {
	if n := t.size(); n > 0 {
		// GVisor's shim answers with what is returned beside the error.
		return &types.Empty{}, fmt.Errorf("container %s is not the last one: the process serves %d others", r.ID, n)
	}
	return &types.Empty{}, nil
}

// The other requests are passed on as they are.

func (t *router) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	return t.of(r.ID).Start(ctx, r)
}

func (t *router) State(ctx context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	return t.of(r.ID).State(ctx, r)
}

func (t *router) Pids(ctx context.Context, r *task.PidsRequest) (*task.PidsResponse, error) {
	return t.of(r.ID).Pids(ctx, r)
}

func (t *router) Pause(ctx context.Context, r *task.PauseRequest) (*types.Empty, error) {
	return t.of(r.ID).Pause(ctx, r)
}

func (t *router) Resume(ctx context.Context, r *task.ResumeRequest) (*types.Empty, error) {
	return t.of(r.ID).Resume(ctx, r)
}

func (t *router) Checkpoint(ctx context.Context, r *task.CheckpointTaskRequest) (*types.Empty, error) {
	return t.of(r.ID).Checkpoint(ctx, r)
}

func (t *router) Kill(ctx context.Context, r *task.KillRequest) (*types.Empty, error) {
	return t.of(r.ID).Kill(ctx, r)
}

func (t *router) Exec(ctx context.Context, r *task.ExecProcessRequest) (*types.Empty, error) {
	return t.of(r.ID).Exec(ctx, r)
}

func (t *router) ResizePty(ctx context.Context, r *task.ResizePtyRequest) (*types.Empty, error) {
	return t.of(r.ID).ResizePty(ctx, r)
}

func (t *router) CloseIO(ctx context.Context, r *task.CloseIORequest) (*types.Empty, error) {
	return t.of(r.ID).CloseIO(ctx, r)
}

func (t *router) Update(ctx context.Context, r *task.UpdateTaskRequest) (*types.Empty, error) {
	return t.of(r.ID).Update(ctx, r)
}

func (t *router) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	return t.of(r.ID).Wait(ctx, r)
}

func (t *router) Stats(ctx context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	return t.of(r.ID).Stats(ctx, r)
}

func (t *router) Connect(ctx context.Context, r *task.ConnectRequest) (*task.ConnectResponse, error) {
	return t.of(r.ID).Connect(ctx, r)
}
