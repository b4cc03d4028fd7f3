package shim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	localv1 "diapause.dev/api/local/v1"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// restoreLimit bounds how long runsc may take over the restore of the sandbox container. It reads
// the kernel state and leaves the memory to the background.
const restoreLimit = 60 * time.Second

// discardLimit bounds the removal of a sandbox that must not come to life.
const discardLimit = 10 * time.Second

// sandbox is the service of a pod's sandbox container and, with grouping, of the pod's other
// containers too.
type sandbox struct {
	*containers
	agent   agent
	pod     pod
	pid     atomic.Int64                               // of the sandbox process; 0: not created
	order   atomic.Pointer[localv1.AskRestoreResponse] // the restore that the agent ordered; nil: none
	saving  chan struct{}                              // holds one token while a checkpoint is made
	reports sync.WaitGroup                             // reports to the agent under way
}

func newSandbox(a agent, p pod, base *containers) *sandbox {
	return &sandbox{containers: base, agent: a, pod: p, saving: make(chan struct{}, 1)}
}

// answer is what came of asking the agent.
type answer struct {
	resp *localv1.AskRestoreResponse
	err  error
}

// Create creates a container. While runsc creates the sandbox, the agent is asked what is to
// become of it.
func (s *sandbox) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if r.ID != s.pod.sandbox {
		return s.containers.Create(ctx, r)
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, 1)
	go func() {
		resp, err := s.ask(asking, r)
		answers <- answer{resp, err}
	}()
	created, err := s.containers.Create(ctx, r)
	if err != nil {
		cancel()
		<-answers
		return nil, err
	}
	s.pid.Store(int64(created.Pid))
	if err := s.settle(<-answers); err != nil {
		s.discard(ctx, r.ID)
		return nil, err
	}
	return created, nil
}

func (s *sandbox) ask(ctx context.Context, r *task.CreateTaskRequest) (*localv1.AskRestoreResponse, error) {
	namespace, _ := namespaces.Namespace(ctx)
	return s.agent.ask(ctx, s.pod, &localv1.AskRestoreRequest{
		SandboxId:           r.ID,
		ContainerdNamespace: namespace,
		Annotations:         s.pod.annotations,
		Bundle:              r.Bundle,
	})
}

// settle takes note of the agent's answer. It returns an error if the sandbox must not start.
func (s *sandbox) settle(a answer) error {
	switch {
	case a.err != nil && s.pod.strict():
		return fmt.Errorf("sandbox %s: whether it is to be restored is not known, and its pod's annotation %s is %s: %w: %w",
			s.pod.sandbox, annotationOnFailure, onFailureFail, a.err, errdefs.ErrFailedPrecondition)
	case a.err != nil:
		log.L.WithError(a.err).Warnf("sandbox %s starts as usual, without an answer of the agent", s.pod.sandbox)
	case a.resp.GetDecision() == localv1.AskRestoreResponse_FAIL:
		return fmt.Errorf("sandbox %s: the agent refuses to start it (request %q): %s: %w",
			s.pod.sandbox, a.resp.GetRequest(), a.resp.GetReason(), errdefs.ErrFailedPrecondition)
	case a.resp.GetDecision() == localv1.AskRestoreResponse_RESTORE:
		log.L.Infof("sandbox %s is to be restored, request %q", s.pod.sandbox, a.resp.GetRequest())
		s.order.Store(a.resp)
	}
	return nil
}

// Start starts a container, or another process in it; the sandbox container is restored if the
// agent ordered it.
func (s *sandbox) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	if r.ID != s.pod.sandbox || r.ExecID != "" {
		return s.containers.Start(ctx, r)
	}
	order := s.order.Load()
	begin := s.TaskServiceExt.Start
	if order != nil {
		begin = func(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
			return s.restore(ctx, r, order)
		}
	}
	resp, err := s.start(ctx, r, begin)
	if order != nil {
		s.report(ctx, order, err)
	}
	if err != nil {
		s.end(r.ID)
		return nil, err
	}
	return resp, nil
}

func (s *sandbox) restore(ctx context.Context, r *task.StartRequest, order *localv1.AskRestoreResponse) (*task.StartResponse, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, restoreLimit, fmt.Errorf("not done within %v", restoreLimit))
	defer cancel()
	resp, err := s.TaskServiceExt.Restore(ctx, &extension.RestoreRequest{
		Start: r,
		Conf:  extension.RestoreConfig{ImagePath: order.GetImagePath(), Background: true},
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return nil, fmt.Errorf("restore sandbox %s, request %q: %w", r.ID, order.GetRequest(), err)
	}
	return resp, nil
}

// report tells the agent how the restore went on, without keeping the caller waiting. Delete waits
// for it.
func (s *sandbox) report(ctx context.Context, order *localv1.AskRestoreResponse, err error) {
	req := &localv1.ReportRestoreRequest{Request: order.GetRequest(), SandboxId: s.pod.sandbox}
	if err != nil {
		req.Error = err.Error()
	}
	s.reports.Add(1)
	go func() {
		defer s.reports.Done()
		if err := s.agent.report(context.WithoutCancel(ctx), req); err != nil {
			log.L.WithError(err).Warnf("the agent was not told how the restore of sandbox %s went on", s.pod.sandbox)
		}
	}()
}

// Delete removes a container that has ended, or what is left of a process in it.
func (s *sandbox) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if r.ID == s.pod.sandbox && r.ExecID == "" {
		s.reports.Wait()
	}
	return s.containers.Delete(ctx, r)
}

// discard removes a created sandbox before anybody learns of it.
func (s *sandbox) discard(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardLimit)
	defer cancel()
	if _, err := s.containers.Delete(ctx, &task.DeleteRequest{ID: id}); err != nil {
		log.L.WithError(err).Warnf("remove sandbox %s, which was not to start", id)
		s.end(id)
	}
}

// end ends a sandbox that did not start: whatever became of runsc, the process goes, and
// everybody who waits for the container learns that it has exited.
func (s *sandbox) end(id string) {
	if err := killSandbox(int(s.pid.Load()), id); err != nil {
		log.L.WithError(err).Warnf("end sandbox %s, which did not start", id)
	}
	announce(id)
}
