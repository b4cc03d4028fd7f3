package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/shim/limits"
	"diapause.dev/runsc/shim/sentry"
	"diapause.dev/runsc/sleep"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// restoreLimit bounds how long runsc may take to restore the sandbox container. Runsc reads the kernel state, and
// loads the memory in the background.
const restoreLimit = 60 * time.Second

// headStart is how long the creation of a sandbox waits for the agent's answer, which usually comes within a few
// milliseconds. After that runsc creates the sandbox without it. If the answer then orders root file systems to be
// restored, or volumes that gVisor would keep inside the sandbox, the sandbox must be created a second time.
const headStart = 30 * time.Millisecond

// discardLimit bounds the removal of a sandbox that must not start.
const discardLimit = 10 * time.Second

// sandbox is the service of a pod's sandbox container. It also serves the pod's other containers.
type sandbox struct {
	*containers
	path     atomic.Pointer[string] // image path of the restore that the agent ordered; nil: none
	begun    atomic.Bool            // a start of the sandbox container was tried
	runs     atomic.Bool            // that start succeeded
	saving   chan struct{}          // holds one token while a checkpoint is made
	ports    ports
	sentry   sentry.Sentry
	headroom *limits.Headroom
	volumes  volumes
	lease    *lease.Lease // of the sandbox's pause

	namespace string            // of containerd
	readiness []sleep.Readiness // the pod's readiness probes over the network

	// Set by newSleepService.
	wake    func(ctx context.Context, cause string) error // wakes the pod if it sleeps
	pausing func(context.Context) (paused func())         // is told that the sandbox is about to be paused for a lease
	catch   func() (repeat func())                        // catches packets that the sandbox drops while it is saved
}

func newSandbox(ctx context.Context, base *containers) *sandbox {
	s := &sandbox{
		containers: base, saving: make(chan struct{}, 1),
		volumes: volumes{base.agent, base.pod, base.progress},
	}
	s.namespace, _ = namespaces.Namespace(ctx)
	s.sentry = sentry.Sentry{Bundle: base.bundle.dir, ID: base.bundle.id, Namespace: s.namespace}
	s.headroom = limits.New(limits.Config{
		Sandbox: base.pod.sandbox, Cgroup: base.pod.cgroup, Bundle: base.bundle.dir, Owns: base.pod.owns,
		Process: base.bundle.process, Kill: base.bundle.kill, Reduce: s.sentry.Reduce,
		Incomplete: base.progress.incomplete,
		Loading:    func() bool { return base.progress.stillLoading(base.pod.sandbox) },
	})
	s.ports = ports{pod: base.pod, sentry: s.sentry, ready: s.connectable, use: base.sessions.Begin}
	s.lease = lease.New(leased{s}, leased{s}.log)
	return s
}

// Create creates a container. If it fails to create the sandbox, it tells the agent.
func (s *sandbox) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if r.ID != s.pod.sandbox {
		return s.containers.Create(ctx, r)
	}
	ctx, cancel := toTheEnd(ctx)
	defer cancel()
	if err := s.volumes.clean(); err != nil {
		return nil, err
	}
	s.roster.add(r.ID, "")
	created, err := s.createAsking(ctx, r)
	if err != nil {
		s.roster.forget(r.ID)
		s.agent.giveUp(ctx, r.ID, fmt.Sprintf("the sandbox was not created: %v", trimStack(err)))
	}
	return created, err
}

// createAsking creates the sandbox container. It asks the agent what to do with the sandbox. If the answer takes
// longer than headStart, runsc creates the sandbox meanwhile.
func (s *sandbox) createAsking(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, 1)
	go func() {
		resp, err := s.ask(asking, r)
		if err == nil && restores(resp) {
			s.liftCPULimit(resp.GetImagePath())
		}
		answers <- answer{resp: resp, err: err}
	}()
	select {
	case a := <-answers:
		return s.createDecided(ctx, r, s.volumes.fill(ctx, a))
	case <-time.After(headStart):
	}
	spec, err := os.ReadFile(specPath(r.Bundle))
	if err != nil {
		return nil, fmt.Errorf("read OCI spec: %w", err)
	}
	created, err := s.create(ctx, r, s.TaskServiceExt.Create)
	if err != nil {
		cancel()
		<-answers
		return nil, err
	}
	a := s.volumes.fill(ctx, <-answers)
	if a.rootfs() || s.volumes.hinted(a) {
		return s.createAgain(ctx, r, spec, a)
	}
	if err := s.settle(a); err != nil {
		s.discard(ctx, r.ID)
		return nil, err
	}
	return created, nil
}

// createDecided creates the sandbox container, given the agent's answer.
func (s *sandbox) createDecided(ctx context.Context, r *task.CreateTaskRequest,
	a answer,
) (*task.CreateTaskResponse, error) {
	if a.rootfs() {
		return s.createRestored(ctx, r, a.order(), a.resp.GetImagePath())
	}
	if err := s.settle(a); err != nil {
		return nil, err
	}
	return s.create(ctx, r, s.TaskServiceExt.Create)
}

// restores reports whether the agent orders a restore.
func restores(resp *localv1.AskRestoreResponse) bool {
	d := resp.GetDecision()
	return d == localv1.AskRestoreResponse_RESTORE || d == localv1.AskRestoreResponse_RESTORE_ROOTFS
}

// create creates the sandbox container by calling f. If the pod's processes may save it, the agent says where to.
// Without an answer they cannot save it.
func (s *sandbox) create(ctx context.Context, r *task.CreateTaskRequest,
	f func(context.Context, *task.CreateTaskRequest) (*task.CreateTaskResponse, error),
) (*task.CreateTaskResponse, error) {
	annotations := s.onNode()
	err := errors.Join(
		s.offer(ctx, annotations, wholePrefix, saveCompression, "none"),
		s.offer(ctx, annotations, filesPrefix, savePaths, savedFiles))
	if err != nil {
		slog.Warn("the sandbox's processes cannot have it saved", "sandbox", r.ID, "error", err)
	}
	if err := annotateFor(s.pod, r.Bundle, annotations); err != nil {
		return nil, err
	}
	return f(ctx, r)
}

// offer adds the annotations by which the pod's processes may save the sandbox, if the pod enables that: the agent's
// image path, and a setting.
func (s *sandbox) offer(ctx context.Context, annotations map[string]string, prefix, setting, value string) error {
	if !s.pod.saves(prefix) {
		return nil
	}
	path, err := s.agent.prepareWorkload(ctx, s.pod.sandbox, prefix == filesPrefix)
	if err != nil {
		return err
	}
	annotations[prefix+savePath], annotations[prefix+saveResume], annotations[prefix+setting] = path, "true", value
	return nil
}

// probeKinds has the kinds of probes that the agent names.
var probeKinds = map[localv1.ReadinessProbe_Kind]sleep.ProbeKind{
	localv1.ReadinessProbe_TCP:  sleep.ProbeTCP,
	localv1.ReadinessProbe_HTTP: sleep.ProbeHTTP,
	localv1.ReadinessProbe_GRPC: sleep.ProbeGRPC,
}

// ask asks the agent how the sandbox is to start, and keeps what it says of the kubelet's probes.
func (s *sandbox) ask(ctx context.Context, r *task.CreateTaskRequest) (*localv1.AskRestoreResponse, error) {
	namespace, _ := namespaces.Namespace(ctx)
	resp, err := s.agent.ask(ctx, s.pod, &localv1.AskRestoreRequest{
		SandboxId:           r.ID,
		ContainerdNamespace: namespace,
		Annotations:         s.pod.annotations,
		Bundle:              r.Bundle,
		MemoryLimit:         s.pod.memoryLimit(),
	})
	s.readiness = nil
	for _, p := range resp.GetReadinessProbes() {
		s.readiness = append(s.readiness, sleep.Readiness{
			Kind: probeKinds[p.GetKind()], Port: uint16(p.GetPort()), Target: p.GetTarget(),
		})
	}
	if err := s.bundle.noteProbes(resp.GetExecProbes()); err != nil {
		slog.Warn("probes by exec wake the pod", "error", err)
	}
	return resp, err
}

// settle acts on the agent's answer. It returns an error if the sandbox must not start.
func (s *sandbox) settle(a answer) error {
	switch {
	case a.err != nil && s.pod.strict():
		return fmt.Errorf("sandbox %s: not known whether to restore it, and its pod's annotation %s is %.80q "+
			"(values: %s and %s; another counts as %[4]s): %[6]w: %[7]w", s.pod.sandbox, annotationOnFailure,
			s.pod.annotations[annotationOnFailure], onFailureFail, onFailureColdStart, a.err, errdefs.ErrFailedPrecondition)
	case a.err != nil && s.pod.must():
		return fmt.Errorf("sandbox %s: its pod slept when the node went down, and waits for the agent to be restored: %w: %w",
			s.pod.sandbox, a.err, errdefs.ErrFailedPrecondition)
	case a.err != nil:
		slog.Warn("the sandbox starts as usual, without an answer of the agent", "sandbox", s.pod.sandbox, "error", a.err)
		s.pod.started()
		return s.pod.forget()
	case a.resp.GetDecision() == localv1.AskRestoreResponse_FAIL:
		return fmt.Errorf("sandbox %s: the agent refuses to start it (request %q): %s: %w",
			s.pod.sandbox, a.resp.GetRequest(), a.resp.GetReason(), errdefs.ErrFailedPrecondition)
	case a.resp.GetDecision() == localv1.AskRestoreResponse_RESTORE:
		slog.Info("the sandbox is to be restored", "sandbox", s.pod.sandbox, "request", a.resp.GetRequest())
		path := a.resp.GetImagePath()
		s.path.Store(&path)
		return s.bundle.order(a.order())
	}
	return nil
}

// Delete removes a container that has ended, or what is left of a process in it. With the sandbox container it ends
// the forwarding. If that sandbox was to be restored and was never started, it tells the agent.
func (s *sandbox) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if r.ID != s.pod.sandbox || r.ExecID != "" {
		return s.containers.Delete(ctx, r)
	}
	if err := s.ports.close(); err != nil {
		slog.Warn("end what is forwarded to the sandbox", "sandbox", r.ID, "error", err)
	}
	s.progress.responds.end()
	resp, err := s.containers.Delete(ctx, r)
	if err == nil {
		s.lease.Close()
		s.headroom.Close()
	}
	if err == nil && s.path.Load() != nil && !s.begun.Load() {
		s.agent.giveUp(ctx, r.ID, "the sandbox was removed before it was started")
	}
	return resp, err
}

// Start starts a container, or another process in it. If the agent ordered it, the sandbox container is restored.
func (s *sandbox) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	if r.ID != s.pod.sandbox || r.ExecID != "" {
		return s.containers.Start(ctx, r)
	}
	s.begun.Store(true)
	begin := s.TaskServiceExt.Start
	if s.path.Load() != nil {
		begin = s.restore
	}
	addresses := s.ports.addresses()
	resp, err := s.starter.start(ctx, r, begin)
	if err != nil {
		s.progress.startFailed(ctx, r.ID, err)
		s.end(r.ID)
		return nil, err
	}
	s.runs.Store(true)
	s.ports.open(ctx, addresses)
	return resp, nil
}

// liftCPULimit takes the limit of processor time from the sandbox until the request at the image path is done.
func (s *sandbox) liftCPULimit(path string) {
	o, err := optionsIn(path)
	if err != nil {
		slog.Warn("the sandbox keeps its CPU limit", "sandbox", s.pod.sandbox, "error", err)
		return
	}
	s.headroom.LiftCPUToRestore(o, func() bool { return isDone(path) })
}

// isDone reports whether the agent has removed a request: then the sandbox has everything.
func isDone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

// connectable returns an error while nothing may connect to the sandbox. It wakes a pod that sleeps.
func (s *sandbox) connectable(ctx context.Context) error {
	if err := s.wake(ctx, "port-forward"); err != nil {
		return err
	}
	return s.progress.askable(ctx, s.pod.sandbox)
}

// Pause stops all processes of the sandbox. It first ends connections through gVisor, so that only the caller, and
// not the sandbox, waits for that. No such connection is made until Resume.
func (s *sandbox) Pause(ctx context.Context, r *task.PauseRequest) (*types.Empty, error) {
	if r.ID != s.pod.sandbox {
		return s.containers.Pause(ctx, r)
	}
	release := s.ports.hold()
	resp, err := s.containers.Pause(ctx, r)
	if err != nil {
		release()
		return nil, err
	}
	s.ports.holdPaused(release)
	return resp, nil
}

// resume resumes a paused container. For the sandbox container, it also allows connections through gVisor again.
func (s *sandbox) resume(ctx context.Context, r *task.ResumeRequest) (*types.Empty, error) {
	resp, err := s.containers.Resume(ctx, r)
	if err == nil && r.ID == s.pod.sandbox {
		s.ports.holdPaused(nil)
	}
	return resp, err
}

// goneLimit bounds the wait for the process of a sandbox that never started to exit, after it was killed.
const goneLimit = 10 * time.Second

// Kill sends a signal to a container, or to a process in it.
func (s *sandbox) Kill(ctx context.Context, r *task.KillRequest) (*types.Empty, error) {
	resp, err := s.containers.Kill(ctx, r)
	if r.ID == s.pod.sandbox && r.ExecID == "" && unix.Signal(r.Signal) == unix.SIGKILL && !s.runs.Load() {
		go s.awaitGone(r.ID)
	}
	return resp, err
}

// awaitGone announces the exit of a sandbox that never started, once its process is gone. GVisor's shim reports no
// such exit, and containerd, if it does not know the sandbox's state, would wait for it without a limit.
func (s *sandbox) awaitGone(id string) {
	for end := time.Now().Add(goneLimit); !s.bundle.gone() && time.Now().Before(end); {
		time.Sleep(retryPause)
	}
	if !s.runs.Load() && s.bundle.gone() {
		announce(id)
	}
}

func (s *sandbox) restore(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	giveUp := s.headroom.ToRestore()
	limited, cancel := context.WithTimeoutCause(ctx, restoreLimit, fmt.Errorf("not done within %v", restoreLimit))
	defer cancel()
	resp, err := s.TaskServiceExt.Restore(limited, &extension.RestoreRequest{
		Start: r,
		Conf:  extension.RestoreConfig{ImagePath: *s.path.Load(), Background: true},
	})
	if err == nil {
		s.headroom.PutBackRestored()
		return resp, nil
	}
	giveUp()
	if cause := context.Cause(limited); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return nil, s.progress.failRestore(ctx, r.ID, err)
}

// discard removes a created sandbox before anything else learns of it.
func (s *sandbox) discard(ctx context.Context, id string) {
	if err := s.containers.discard(ctx, id); err != nil {
		slog.Warn("remove a sandbox that was not to start", "sandbox", id, "error", err)
		s.end(id)
	}
}

// end ends a sandbox that did not start. Whatever happened to runsc, it kills the process and announces the exit.
// GVisor's shim would never tell those who wait for the container.
func (s *sandbox) end(id string) {
	if err := s.bundle.kill(); err != nil {
		slog.Warn("end a sandbox that did not start", "sandbox", id, "error", err)
	}
	announce(id)
}
