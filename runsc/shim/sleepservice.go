package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/refusal"
	"diapause.dev/runsc/shim/answered"
	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/use"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// sleepService stands before the service of the pod's containers. While the pod sleeps there is no sandbox, and it
// answers for them: GVisor's shim would take them for ended. What needs the sandbox wakes the pod first.
//
// All containers of a pod share one, see podsleep.go. A container of no pod has one of its own, and does not sleep.
type sleepService struct {
	extension.TaskServiceExt
	*podSleep
	entry entering
	wakes waking
	exits exiting

	suspended atomic.Bool // it was paused and not resumed; see stateUnanswered
	counting  use.Counting
	probes    answered.Execs
}

// newSleepService returns the service of a container, or of the containers of sandbox s.
func newSleepService(ctx context.Context, next extension.TaskServiceExt, c *containers, s *sandbox) *sleepService {
	p := newPodSleep(ctx, next, c, s)
	z := &sleepService{TaskServiceExt: next, podSleep: p, entry: entering{p}, wakes: waking{podSleep: p}}
	z.exits = exiting{p, &z.wakes.shared}
	if s != nil {
		s.wake, s.pausing, s.catch = z.wakes.wake, z.entry.pausing, p.catch
	}
	return z
}

// awake lets a request through to gVisor. If the pod sleeps, it wakes it first.
func (z *sleepService) awake(ctx context.Context, cause string) (release func(), err error) {
	for {
		if release, ok := z.state.Through(); ok {
			return release, nil
		}
		if err := z.wakes.wake(ctx, cause); err != nil {
			return nil, errgrpc.ToGRPC(err)
		}
	}
}

// enter lets a request through to gVisor that begins a container of the pod. If the pod sleeps, enter wakes it first.
// If it is falling asleep, it stays awake.
func (z *sleepService) enter(ctx context.Context, cause string) (release func(), err error) {
	if err := z.wakes.wake(ctx, cause); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return z.awake(ctx, cause)
}

// Create implements task.TaskService. It wakes a pod that sleeps.
func (z *sleepService) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	release, err := z.enter(ctx, "create")
	if err != nil {
		return nil, err
	}
	defer release()
	resp, err := z.TaskServiceExt.Create(ctx, r)
	if err == nil {
		bundle := filepath.Join(filepath.Dir(z.c.bundle.dir), r.ID)
		p, err := readPod(bundle)
		z.warn(err, "read the name of container "+r.ID)
		z.created(&resident{
			id: r.ID, bundle: bundle, name: p.container, execs: make(map[string]added),
			io: &task.CreateTaskRequest{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal},
		}, resp.Pid, r.ID == z.c.bundle.id)
		resp.Pid = z.pidOf(r.ID, resp.Pid)
	}
	return resp, err
}

// Start implements task.TaskService. Before the sandbox container starts, it notes how the pod's network is.
func (z *sleepService) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	if p := z.probes.Of(r.ID, r.ExecID); p != nil {
		return p.Start(ctx)
	}
	begin := z.enter
	if r.ExecID != "" {
		begin = z.awake
	}
	release, err := begin(ctx, "start")
	if err != nil {
		return nil, err
	}
	defer release()
	sandbox := z.s != nil && r.ID == z.s.pod.sandbox && r.ExecID == ""
	if sandbox {
		z.recordNetwork()
	}
	resp, err := z.TaskServiceExt.Start(ctx, r)
	switch {
	case err != nil:
	case r.ExecID != "":
		go z.attendExec(context.WithoutCancel(ctx), r)
	default:
		resp.Pid = z.pidOf(r.ID, resp.Pid)
		if sandbox && z.c.bundle.missing() > 1 {
			z.c.progress.responds.begin(z.network, z.c.bundle, &z.c.process.kubelet)
		}
	}
	return resp, err
}

// attendExec waits for the end of a process that was added to a container. Its session is over then, and it no longer
// keeps the pod awake, even if containerd has forgotten to delete it.
func (z *sleepService) attendExec(ctx context.Context, r *task.StartRequest) {
	_, err := z.TaskServiceExt.Wait(ctx, &task.WaitRequest{ID: r.ID, ExecID: r.ExecID})
	if err != nil {
		slog.Debug("wait for a process", "container", r.ID, "exec", r.ExecID, "error", err)
	}
	z.forget(&task.DeleteRequest{ID: r.ID, ExecID: r.ExecID})
}

// Exec implements task.TaskService. It decides what counts as use of the pod: all but liveness and readiness probes of
// the kubelet, which do not wake it either. Some probes and hooks are answered, see execprobes.go.
func (z *sleepService) Exec(ctx context.Context, r *task.ExecProcessRequest) (*types.Empty, error) {
	x := z.of(r.ID)
	var is kinds
	if x != nil {
		is = z.c.bundle.kindsOf(x.name, r)
	}
	release, ok := z.state.Through()
	if !ok && is.readiness && z.sleepsOn.Load() {
		return z.probes.Answer(r, 1)
	}
	if !ok && (is.probe || is.preStop && !z.signalled.Load()) {
		return z.probes.Answer(r, 0)
	}
	if ok && is.probe && z.probing.answers(z.s) {
		release()
		return z.probes.Answer(r, 0)
	}
	if !ok {
		var err error
		if release, err = z.awake(ctx, "exec"); err != nil {
			return nil, err
		}
	}
	defer release()
	if hook := is.postStart && z.c.starter.recent.takeHook(r.ID); hook || is != (kinds{}) && z.c.progress.incomplete() {
		return z.probes.Answer(r, 0)
	}
	resp, err := z.TaskServiceExt.Exec(ctx, r)
	if err == nil && x != nil {
		end := func() {}
		if !is.probe {
			end = z.c.sessions.Begin()
		}
		z.mu.Lock()
		x.execs[r.ExecID] = added{end, is.probe, r}
		z.mu.Unlock()
	}
	return resp, err
}

// Wait implements task.TaskService.
func (z *sleepService) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	if p := z.probes.Of(r.ID, r.ExecID); p != nil {
		return p.Wait(ctx)
	}
	return z.TaskServiceExt.Wait(ctx, r)
}

// Delete implements task.TaskService. A container that sleeps ends first.
func (z *sleepService) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if z.probes.Of(r.ID, r.ExecID) != nil {
		return z.probes.Forget(r.ID, r.ExecID), nil
	}
	if r.ExecID == "" && z.state.Answered() {
		if _, err := z.exits.exitAsleep(ctx, r.ID, statusKilled); err != nil {
			return nil, err
		}
	}
	resp, err := z.TaskServiceExt.Delete(ctx, r)
	switch {
	case r.ExecID != "" && errors.Is(err, errHung): // it has ended, and its session is over
	case err != nil:
		return nil, err
	case r.ExecID == "":
		resp.Pid = z.pidOf(r.ID, resp.Pid)
	}
	z.forget(r)
	if r.ExecID == "" {
		z.probes.ForgetAll(r.ID)
	}
	return resp, err
}

// ResizePty implements task.TaskService.
func (z *sleepService) ResizePty(ctx context.Context, r *task.ResizePtyRequest) (*types.Empty, error) {
	release, ok := z.state.Through()
	if !ok { // a container with a terminal does not sleep
		return &types.Empty{}, nil
	}
	defer release()
	return z.TaskServiceExt.ResizePty(ctx, r)
}

// wakingLimit bounds the wait of a question for a pod's state until the pod is awake. Containerd waits for two seconds.
const wakingLimit = 1500 * time.Millisecond

// State implements task.TaskService. While the pod wakes, a question for its sandbox waits a little: whoever asks then
// wants the new process.
func (z *sleepService) State(ctx context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	if p := z.probes.Of(r.ID, r.ExecID); p != nil {
		return p.State(r), nil
	}
	if r.ID == z.c.bundle.id {
		z.wakes.shared.await(ctx, wakingLimit)
	}
	release, ok := z.state.Through()
	switch {
	case !ok && r.ExecID != "": // it has ended before the pod fell asleep: gVisor's shim knows how, without runsc
		return z.TaskServiceExt.State(ctx, r)
	case !ok:
		return z.stateAsleep(r.ID)
	}
	defer release()
	resp, err := z.TaskServiceExt.State(ctx, r)
	if errors.Is(err, errHung) {
		return z.stateUnanswered(r.ID, r.ExecID)
	}
	if err == nil && r.ExecID == "" {
		resp.Pid = z.pidOf(r.ID, resp.Pid)
		resp.Status = z.statusOf(resp.Status)
	}
	return resp, err
}

// statusOf returns what is answered for the status of a container. A pod that is paused by a lease, so that it can be
// saved, counts as running: a containerd that starts just then ends sandboxes that do not run
// (internal/cri/server/podsandbox, RecoverContainer). The holder of the lease asks for the lease instead.
func (z *sleepService) statusOf(s tasktypes.Status) tasktypes.Status {
	if s == tasktypes.Status_PAUSED && z.s != nil && z.s.lease.Held() {
		return tasktypes.Status_RUNNING
	}
	return s
}

// Pause implements task.TaskService. It goes on if the caller has ceased to wait, for instance because containerd was
// killed: runsc pauses the sandbox, and then notes that in the container's state. If runsc is killed in between, the
// state says that the container runs, and the sandbox can never be resumed. So it is with Resume: then the state says
// that the container is paused, and the next resume makes the sentry panic.
func (z *sleepService) Pause(ctx context.Context, r *task.PauseRequest) (*types.Empty, error) {
	release, err := z.awake(ctx, "pause")
	if err != nil {
		return nil, err
	}
	defer release()
	resp, err := z.TaskServiceExt.Pause(context.WithoutCancel(ctx), r)
	if err == nil {
		z.suspended.Store(true)
	}
	return resp, err
}

// Resume implements task.TaskService. It goes on as Pause does.
func (z *sleepService) Resume(ctx context.Context, r *task.ResumeRequest) (*types.Empty, error) {
	release, err := z.awake(ctx, "resume")
	if err != nil {
		return nil, err
	}
	defer release()
	resp, err := z.TaskServiceExt.Resume(context.WithoutCancel(ctx), r)
	if err == nil {
		z.suspended.Store(false)
	}
	return resp, err
}

// Kill implements task.TaskService. If the agent saves the pod before it ends, the signal is held, see
// deferredsignals.go.
func (z *sleepService) Kill(ctx context.Context, r *task.KillRequest) (*types.Empty, error) {
	if z.probes.Of(r.ID, r.ExecID) != nil {
		return nil, errgrpc.ToGRPC(answered.ErrOver)
	}
	send := func(ctx context.Context, r *task.KillRequest) error {
		_, err := z.kill(ctx, r)
		return err
	}
	switch asleep := z.state.Answered(); {
	case asleep && asksToEnd(r):
		return &types.Empty{}, z.killAsleep(ctx, r, send)
	case !asleep && z.c.deferred.deferSignal(ctx, r, send, nil):
		return &types.Empty{}, nil
	}
	return z.kill(ctx, r)
}

// killAsleep ends a container of a pod that sleeps. The agent may first have the snapshot serve the pod's successors:
// then the pod is not woken, whatever its policy says of its end.
func (z *sleepService) killAsleep(ctx context.Context, r *task.KillRequest,
	end func(context.Context, *task.KillRequest) error,
) error {
	unsaved := end
	if z.signalled.Load() {
		unsaved = func(ctx context.Context, r *task.KillRequest) error {
			go z.killAwake(context.WithoutCancel(ctx), r)
			return nil
		}
	}
	if z.c.deferred.deferSignal(ctx, r, unsaved, end) {
		return nil
	}
	return unsaved(ctx, r)
}

// killAwake wakes the pod and delivers a signal that tells a container to end, as if the pod had not slept. Containerd
// has its answer already, so that the grace period goes on: SIGKILL comes in time, and ends a pod that was not woken.
func (z *sleepService) killAwake(ctx context.Context, r *task.KillRequest) {
	if err := z.wakes.wake(ctx, "signal"); err != nil {
		z.warn(err, "it gets no signal before it ends")
		return
	}
	_, err := z.Kill(ctx, r)
	z.warn(err, fmt.Sprintf("signal %v for container %s", unix.Signal(r.Signal), r.ID))
}

// kill delivers a signal. A pod that sleeps is not woken to be ended: it ends in its sleep, all its
// containers with the status of the signal. Signals that ask a process for something else wake it.
func (z *sleepService) kill(ctx context.Context, r *task.KillRequest) (*types.Empty, error) {
	if r.ExecID == "" && ends(unix.Signal(r.Signal)) {
		for z.state.Answered() {
			ended, err := z.exits.exitAsleep(ctx, r.ID, 128+int(r.Signal))
			if ended || err != nil {
				return &types.Empty{}, err
			}
		}
	}
	release, err := z.awake(ctx, "signal")
	if err != nil {
		return nil, err
	}
	defer release()
	return z.TaskServiceExt.Kill(ctx, r)
}

// Pids implements task.TaskService. Containerd removes a container that has no process when it starts again.
func (z *sleepService) Pids(ctx context.Context, r *task.PidsRequest) (*task.PidsResponse, error) {
	release, ok := z.state.Through()
	if !ok {
		if x := z.of(r.ID); x != nil && x.pids != nil {
			return x.pids, nil
		}
		return &task.PidsResponse{Processes: []*tasktypes.ProcessInfo{{Pid: 1}}}, nil
	}
	defer release()
	resp, err := z.TaskServiceExt.Pids(ctx, r)
	if errors.Is(err, errHung) {
		return z.pidsUnanswered(r.ID)
	}
	return resp, err
}

// Checkpoint implements task.TaskService.
func (z *sleepService) Checkpoint(ctx context.Context, r *task.CheckpointTaskRequest) (*types.Empty, error) {
	release, ok := z.state.Through()
	if !ok {
		return nil, errgrpc.ToGRPC(fmt.Errorf("container %s: its pod sleeps: %w", r.ID, errdefs.ErrFailedPrecondition))
	}
	defer release()
	return z.TaskServiceExt.Checkpoint(ctx, r)
}

// Connect implements task.TaskService.
func (z *sleepService) Connect(ctx context.Context, r *task.ConnectRequest) (*task.ConnectResponse, error) {
	resp, err := z.TaskServiceExt.Connect(ctx, r) // does not ask runsc
	if err == nil {
		resp.TaskPid = z.pidOf(r.ID, resp.TaskPid)
	}
	return resp, err
}

// Stats implements task.TaskService.
func (z *sleepService) Stats(ctx context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	x := z.of(r.ID)
	release, ok := z.state.Through()
	if !ok {
		if x != nil {
			if resp, ok := x.usage.Asleep(); ok {
				return resp, nil
			}
		}
		return nil, errgrpc.ToGRPC(fmt.Errorf("container %s sleeps: %w", r.ID, errdefs.ErrUnavailable))
	}
	defer release()
	resp, err := z.TaskServiceExt.Stats(ctx, r)
	if err != nil || x == nil {
		return resp, err
	}
	return x.usage.Whole(resp)
}

// Update implements task.TaskService. If the request has the annotation for orders about the pod's sleep, it carries
// out the order instead. The resources of a container that sleeps are changed when it is woken.
func (z *sleepService) Update(ctx context.Context, r *task.UpdateTaskRequest) (*types.Empty, error) {
	if text, ok := r.Annotations[sleep.Annotation]; ok {
		o, err := sleep.Parse(text)
		if err == nil {
			err = z.do(ctx, r.ID, o)
		}
		if err != nil {
			return nil, errgrpc.ToGRPC(fmt.Errorf("%s sandbox %s: %w", o.Verb, z.c.bundle.id, refusal.Sleep.Tell(err)))
		}
		return &types.Empty{}, nil
	}
	leased := r.Annotations[lease.Annotation] != ""
	release, ok := z.state.Through()
	switch {
	case !ok && leased:
		return nil, errgrpc.ToGRPC(fmt.Errorf("sandbox %s sleeps: %w", r.ID, refusal.Lease.Tell(lease.ErrRanOut)))
	case !ok:
		z.noteResized(r)
		return &types.Empty{}, nil
	}
	defer release()
	resp, err := z.TaskServiceExt.Update(ctx, r)
	if err == nil && !leased {
		z.noteResized(r)
	}
	return resp, err
}

// do carries out an order, which is for the sandbox container.
func (z *sleepService) do(ctx context.Context, id string, o sleep.Order) error {
	if z.s == nil || id != z.s.pod.sandbox {
		return fmt.Errorf("%w: container %s is no sandbox", sleep.ErrInvalid, id)
	}
	switch o.Verb {
	case sleep.Watch:
		return z.entry.prepare(ctx, o)
	case sleep.Fall:
		return z.enterSleep(ctx, o)
	case sleep.Stay:
		return z.entry.cancel(ctx)
	case sleep.Wake:
		return z.wakes.wake(ctx, o.Cause)
	case sleep.End:
		return z.exits.end(ctx, o)
	case sleep.MakeReady:
		return z.makeReady(ctx, o.Load)
	case sleep.DropReady:
		return z.dropReady(ctx)
	case sleep.Answers:
		release, ok := z.state.Through()
		if !ok { // it sleeps
			return nil
		}
		defer release()
		return z.s.sentry.Answered(ctx, o.AnswerWithin, o.Ignored)
	case sleep.Count, sleep.Senders:
		pid, err := z.c.bundle.process()
		if err != nil {
			return err
		}
		if o.Verb == sleep.Senders {
			return use.WatchSenders(ctx, pid, o.Ignored, z.c.sessions.File)
		}
		return z.counting.Begin(pid, o.Ignored, z.c.sessions.File)
	}
	return fmt.Errorf("%w: %q", sleep.ErrInvalid, o.Verb)
}

// enterSleep puts the pod to sleep, until a packet comes or something asks for it.
func (z *sleepService) enterSleep(ctx context.Context, o sleep.Order) error {
	return z.entry.enter(ctx, o, func(w *watch) { go z.wakes.awaitTraffic(w, z.state.Over()) })
}
