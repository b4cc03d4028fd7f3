package shim

import (
	"context"
	"fmt"
	"log/slog"

	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/refusal"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// The rules of a pause's lease are in package lease. Here is how its orders come, and what it does to the sandbox.

// Update changes a container's resources. If the request has the annotation for the lease of the sandbox's pause, it
// does what that annotation asks for instead.
func (s *sandbox) Update(ctx context.Context, r *task.UpdateTaskRequest) (*types.Empty, error) {
	text, ok := r.Annotations[lease.Annotation]
	if !ok || r.ID != s.pod.sandbox {
		return s.containers.Update(ctx, r)
	}
	req, err := lease.Parse(text)
	if err == nil {
		err = s.lease.Do(ctx, req)
	}
	if err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("sandbox %s: %w", r.ID, refusal.Lease.Tell(err)))
	}
	return &types.Empty{}, nil
}

// Resume resumes a container. For the sandbox, it also releases the lease of the pause.
func (s *sandbox) Resume(ctx context.Context, r *task.ResumeRequest) (resp *types.Empty, err error) {
	if r.ID != s.pod.sandbox {
		return s.containers.Resume(ctx, r)
	}
	err = s.lease.Free(ctx, func() (err error) {
		resp, err = s.resume(ctx, r)
		return err
	})
	return resp, err
}

// leased is the sandbox as its lease uses it. Its methods go on if ctx ends, for the reason that sleepService.Pause
// gives: the lease must know whether the sandbox is paused.
type leased struct{ *sandbox }

// Pause refuses if there is not enough memory to save the sandbox: then there is no reason to pause it.
func (s leased) Pause(ctx context.Context) error {
	if err := s.headroom.CheckMemory(ctx); err != nil {
		return err
	}
	paused := s.pausing(ctx)
	_, err := s.sandbox.Pause(context.WithoutCancel(ctx), &task.PauseRequest{ID: s.pod.sandbox})
	if err == nil {
		paused()
	}
	return err
}

func (s leased) Resume(ctx context.Context) error {
	ctx = namespaces.WithNamespace(context.WithoutCancel(ctx), s.namespace)
	_, err := s.resume(ctx, &task.ResumeRequest{ID: s.pod.sandbox})
	if err == nil {
		return nil
	}
	switch s.status(ctx, s.pod.sandbox) { // asked only now, because that takes as long as to resume it
	case tasktypes.Status_RUNNING, tasktypes.Status_STOPPED:
		return nil
	}
	return err
}

func (s leased) Kill() error { return s.bundle.kill() }

func (s leased) log(what string, err error) {
	slog.Warn(what, "sandbox", s.pod.sandbox, "error", err)
}
