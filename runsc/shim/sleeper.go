package shim

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/revive"
	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/use"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
)

// sleeper stands before the service of a container. While the pod sleeps there is no sandbox, and it answers for the
// container: GVisor's shim would take the container for ended. What needs the sandbox wakes the pod first.
//
// All containers of a pod share one sleeper, see fall.go and wake.go. A container of no pod has one of its own, and
// does not sleep.
type sleeper struct {
	extension.TaskServiceExt
	c         *containers
	s         *sandbox // nil: the container belongs to no pod
	namespace string   // of containerd

	gate   sync.RWMutex // held for reading by requests that reach gVisor, for writing when asleep changes
	asleep atomic.Bool  // no request reaches gVisor
	toEnd  atomic.Bool  // while it sleeps: a signal that tells a container to end wakes the pod
	dozing dozing

	suspended atomic.Bool // it was paused and not resumed; see stateUnanswered

	mu  sync.Mutex
	all map[string]*resident // the containers of this process, by id
	pid uint32               // of the sandbox; 0: there was none yet

	counting use.Counting

	probes answeredExecs

	night
}

// resident is a container that can sleep.
type resident struct {
	id, bundle string
	name       string                  // in its pod; empty: it has none
	io         *task.CreateTaskRequest // names of its standard streams
	usage      usage

	// The fields below are guarded by sleeper.mu.
	execs   map[string]added // processes that were added to it and run or are to
	state   *task.StateResponse
	pids    *task.PidsResponse
	streams *streams
	resized *task.UpdateTaskRequest        // the newest change of its resources; nil: none
	woken   bool                           // the sandbox was restored with it
	dead    bool                           // it has ended in its sleep
	revival atomic.Pointer[revive.Revival] // it is being created again; nil: it is not
}

// added is a process that was added to a container.
type added struct {
	end   func()                   // ends its session
	probe bool                     // the kubelet has added it as a probe
	io    *task.ExecProcessRequest // names of its standard streams
}

func newSleeper(ctx context.Context, next extension.TaskServiceExt, c *containers, s *sandbox) *sleeper {
	z := &sleeper{TaskServiceExt: next, c: c, s: s, all: make(map[string]*resident)}
	z.namespace, _ = namespaces.Namespace(ctx)
	z.night.turn = make(chan struct{}, 1)
	if s != nil {
		s.rouse, s.pausing, s.catch = z.rouse, z.pausing, z.catch
	}
	return z
}

// of returns a container of this process, or nil.
func (z *sleeper) of(id string) *resident {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.all[id]
}

// through lets a request through to gVisor unless the pod sleeps. If ok, release must be called after the request.
func (z *sleeper) through() (release func(), ok bool) {
	z.gate.RLock()
	if z.asleep.Load() {
		z.gate.RUnlock()
		return nil, false
	}
	return z.gate.RUnlock, true
}

// awake lets a request through to gVisor. If the pod sleeps, it wakes it first.
func (z *sleeper) awake(ctx context.Context, cause string) (release func(), err error) {
	for {
		if release, ok := z.through(); ok {
			return release, nil
		}
		if err := z.rouse(ctx, cause); err != nil {
			return nil, errgrpc.ToGRPC(err)
		}
	}
}

// enter lets a request through to gVisor that begins a container of the pod. If the pod sleeps, enter wakes it first.
// If it is falling asleep, it stays awake.
func (z *sleeper) enter(ctx context.Context, cause string) (release func(), err error) {
	if err := z.rouse(ctx, cause); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return z.awake(ctx, cause)
}

// gatePoll is how often shut tries again.
const gatePoll = time.Millisecond

// shut sets asleep while no request is under way. A request that waits keeps no other one from being answered. The
// caller has the turn.
func (z *sleeper) shut(ctx context.Context, asleep bool) error {
	if z.asleep.Load() == asleep {
		return nil
	}
	for !z.gate.TryLock() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("a request is in progress: %w: %w", sleep.ErrUnfit, context.Cause(ctx))
		case <-time.After(gatePoll):
		}
	}
	defer z.gate.Unlock()
	z.asleep.Store(asleep)
	if !asleep {
		z.dozing.stir()
	}
	return nil
}

// Create implements task.TaskService. It wakes a pod that sleeps.
func (z *sleeper) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
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
		z.mu.Lock()
		if r.ID == z.c.bundle.id {
			z.pid = resp.Pid
		}
		z.all[r.ID] = &resident{
			id: r.ID, bundle: bundle, name: p.container, execs: make(map[string]added),
			io: &task.CreateTaskRequest{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal},
		}
		z.mu.Unlock()
		resp.Pid = z.pidOf(r.ID, resp.Pid)
	}
	return resp, err
}

// Start implements task.TaskService. Before the sandbox container starts, it notes how the pod's network is.
func (z *sleeper) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	if p := z.probes.of(r.ID, r.ExecID); p != nil {
		return p.start(ctx)
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
			z.c.responds.begin(z.network, z.c.bundle)
		}
	}
	return resp, err
}

// attendExec waits for the end of a process that was added to a container. Its session is over then, and it no longer
// keeps the pod awake, even if containerd has forgotten to delete it.
func (z *sleeper) attendExec(ctx context.Context, r *task.StartRequest) {
	_, err := z.TaskServiceExt.Wait(ctx, &task.WaitRequest{ID: r.ID, ExecID: r.ExecID})
	if err != nil {
		log.L.WithError(err).Debugf("wait for process %s of container %s", r.ExecID, r.ID)
	}
	z.forget(&task.DeleteRequest{ID: r.ID, ExecID: r.ExecID})
}

// Exec implements task.TaskService. A probe of the kubelet does not wake the pod, and is no session. Some probes and
// hooks are answered, see execprobes.go.
func (z *sleeper) Exec(ctx context.Context, r *task.ExecProcessRequest) (*types.Empty, error) {
	x := z.of(r.ID)
	var is kinds
	if x != nil {
		is = z.c.bundle.kindsOf(x.name, r)
	}
	release, ok := z.through()
	if !ok && (is.probe || is.preStop && !z.toEnd.Load()) {
		return z.probes.answer(r)
	}
	if ok && is.probe && z.falling.answers(z.s) {
		release()
		return z.probes.answer(r)
	}
	if !ok {
		var err error
		if release, err = z.awake(ctx, "exec"); err != nil {
			return nil, err
		}
	}
	defer release()
	if hook := is.postStart && z.c.starts.takeHook(r.ID); hook || is != (kinds{}) && z.c.incomplete() {
		return z.probes.answer(r)
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
func (z *sleeper) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	if p := z.probes.of(r.ID, r.ExecID); p != nil {
		return p.wait(ctx)
	}
	return z.TaskServiceExt.Wait(ctx, r)
}

// Delete implements task.TaskService. A container that sleeps ends first.
func (z *sleeper) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if z.probes.of(r.ID, r.ExecID) != nil {
		return z.probes.forget(r.ID, r.ExecID), nil
	}
	if r.ExecID == "" && z.asleep.Load() {
		if err := z.finish(ctx, r.ID, killed); err != nil {
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
	return resp, err
}

// forget forgets what was deleted or has ended, and ends its sessions.
func (z *sleeper) forget(r *task.DeleteRequest) {
	z.mu.Lock()
	defer z.mu.Unlock()
	x := z.all[r.ID]
	if x == nil {
		return
	}
	for id, p := range x.execs {
		if r.ExecID == "" || r.ExecID == id {
			p.end()
			delete(x.execs, id)
		}
	}
	if r.ExecID == "" {
		delete(z.all, r.ID)
		z.probes.forgetAll(r.ID)
	}
}

// ResizePty implements task.TaskService.
func (z *sleeper) ResizePty(ctx context.Context, r *task.ResizePtyRequest) (*types.Empty, error) {
	release, ok := z.through()
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
func (z *sleeper) State(ctx context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	if p := z.probes.of(r.ID, r.ExecID); p != nil {
		return p.state(r), nil
	}
	if r.ID == z.c.bundle.id {
		z.wakes.await(ctx, wakingLimit)
	}
	release, ok := z.through()
	switch {
	case !ok && r.ExecID != "": // it has ended before the pod fell asleep: gVisor's shim knows how, without runsc
		return z.TaskServiceExt.State(ctx, r)
	case !ok:
		return z.stateAsleep(r)
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
func (z *sleeper) statusOf(s tasktypes.Status) tasktypes.Status {
	if s == tasktypes.Status_PAUSED && z.s != nil && z.s.lease.Held() {
		return tasktypes.Status_RUNNING
	}
	return s
}

// stateAsleep returns the state of a container as it was before it fell asleep.
func (z *sleeper) stateAsleep(r *task.StateRequest) (*task.StateResponse, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	x := z.all[r.ID]
	if x == nil || x.state == nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("container %s: %w", r.ID, errdefs.ErrNotFound))
	}
	return x.state, nil // nobody changes it any more
}

// pidOf returns the process of a container for which gVisor's shim knows pid. Of a pod's containers that is the
// sandbox's. GVisor's shim knows none except the first one of the sandbox container, see oom.go.
func (z *sleeper) pidOf(id string, pid uint32) uint32 {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.pid != 0 && z.all[id] != nil {
		return z.pid
	}
	return pid
}

// Pause implements task.TaskService. It goes on if the caller has ceased to wait, for instance because containerd was
// killed: runsc pauses the sandbox, and then notes that in the container's state. If runsc is killed in between, the
// state says that the container runs, and the sandbox can never be resumed. So it is with Resume: then the state says
// that the container is paused, and the next resume makes the sentry panic.
func (z *sleeper) Pause(ctx context.Context, r *task.PauseRequest) (*types.Empty, error) {
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
func (z *sleeper) Resume(ctx context.Context, r *task.ResumeRequest) (*types.Empty, error) {
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

// Kill implements task.TaskService. If the agent saves the pod before it ends, the signal is held, see termination.go.
func (z *sleeper) Kill(ctx context.Context, r *task.KillRequest) (*types.Empty, error) {
	if z.probes.of(r.ID, r.ExecID) != nil {
		return nil, errgrpc.ToGRPC(errProbeOver)
	}
	send := func(ctx context.Context, r *task.KillRequest) error {
		_, err := z.kill(ctx, r)
		return err
	}
	switch asleep := z.asleep.Load(); {
	case asleep && asksToEnd(r):
		return &types.Empty{}, z.killAsleep(ctx, r, send)
	case !asleep && z.c.held(ctx, r, send, nil):
		return &types.Empty{}, nil
	}
	return z.kill(ctx, r)
}

// killAsleep ends a container of a pod that sleeps. The agent may first have the snapshot serve the pod's successors:
// then the pod is not woken, whatever its policy says of its end.
func (z *sleeper) killAsleep(ctx context.Context, r *task.KillRequest,
	end func(context.Context, *task.KillRequest) error,
) error {
	unsaved := end
	if z.toEnd.Load() {
		unsaved = func(ctx context.Context, r *task.KillRequest) error {
			go z.killAwake(context.WithoutCancel(ctx), r)
			return nil
		}
	}
	if z.c.held(ctx, r, unsaved, end) {
		return nil
	}
	return unsaved(ctx, r)
}

// asksToEnd reports whether a signal tells a container to end, and leaves it time for that.
func asksToEnd(r *task.KillRequest) bool {
	s := unix.Signal(r.Signal)
	return r.ExecID == "" && ends(s) && s != unix.SIGKILL
}

// killAwake wakes the pod and delivers a signal that tells a container to end, as if the pod had not slept. Containerd
// has its answer already, so that the grace period goes on: SIGKILL comes in time, and ends a pod that was not woken.
func (z *sleeper) killAwake(ctx context.Context, r *task.KillRequest) {
	if err := z.rouse(ctx, "signal"); err != nil {
		z.warn(err, "it gets no signal before it ends")
		return
	}
	_, err := z.Kill(ctx, r)
	z.warn(err, fmt.Sprintf("signal %v for container %s", unix.Signal(r.Signal), r.ID))
}

// kill delivers a signal. A pod that sleeps is not woken to be ended: it ends in its sleep, all its
// containers with the status of the signal. Signals that ask a process for something else wake it.
func (z *sleeper) kill(ctx context.Context, r *task.KillRequest) (*types.Empty, error) {
	if r.ExecID == "" && ends(unix.Signal(r.Signal)) {
		for z.asleep.Load() {
			ended, err := z.finished(ctx, r.ID, 128+int(r.Signal))
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
func (z *sleeper) Pids(ctx context.Context, r *task.PidsRequest) (*task.PidsResponse, error) {
	release, ok := z.through()
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
func (z *sleeper) Checkpoint(ctx context.Context, r *task.CheckpointTaskRequest) (*types.Empty, error) {
	release, ok := z.through()
	if !ok {
		return nil, errgrpc.ToGRPC(fmt.Errorf("container %s: its pod sleeps: %w", r.ID, errdefs.ErrFailedPrecondition))
	}
	defer release()
	return z.TaskServiceExt.Checkpoint(ctx, r)
}

// Connect implements task.TaskService.
func (z *sleeper) Connect(ctx context.Context, r *task.ConnectRequest) (*task.ConnectResponse, error) {
	resp, err := z.TaskServiceExt.Connect(ctx, r) // does not ask runsc
	if err == nil {
		resp.TaskPid = z.pidOf(r.ID, resp.TaskPid)
	}
	return resp, err
}

// Stats implements task.TaskService.
func (z *sleeper) Stats(ctx context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	x := z.of(r.ID)
	release, ok := z.through()
	if !ok {
		if x != nil {
			if resp, ok := x.usage.asleep(); ok {
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
	return x.usage.whole(resp)
}

// Update implements task.TaskService. If the request has the annotation for orders about the pod's sleep, it carries
// out the order instead. The resources of a container that sleeps are changed when it is woken.
func (z *sleeper) Update(ctx context.Context, r *task.UpdateTaskRequest) (*types.Empty, error) {
	if text, ok := r.Annotations[sleep.Annotation]; ok {
		o, err := sleep.Parse(text)
		if err == nil {
			err = z.do(ctx, r.ID, o)
		}
		if err != nil {
			return nil, errgrpc.ToGRPC(fmt.Errorf("%s sandbox %s: %w", o.Verb, z.c.bundle.id, sleepKind(err)))
		}
		return &types.Empty{}, nil
	}
	leased := r.Annotations[lease.Annotation] != ""
	release, ok := z.through()
	switch {
	case !ok && leased:
		return nil, errgrpc.ToGRPC(fmt.Errorf("sandbox %s sleeps: %w", r.ID, leaseKind(lease.ErrRanOut)))
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

func (z *sleeper) noteResized(r *task.UpdateTaskRequest) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if x := z.all[r.ID]; x != nil {
		x.resized = r
	}
}

// sleepKind gives an error a kind that reaches the agent. It avoids the kinds with which a shim that knows no sleep
// answers, and those that say that no shim has answered.
func sleepKind(err error) error {
	switch {
	case errors.Is(err, sleep.ErrTraffic):
		return fmt.Errorf("%w: %w", err, errdefs.ErrOutOfRange)
	case errors.Is(err, sleep.ErrInUse):
		return fmt.Errorf("%w: %w", err, errdefs.ErrResourceExhausted)
	case errors.Is(err, sleep.ErrUnfit), errors.Is(err, lease.ErrRanOut):
		return fmt.Errorf("%w: %w", err, errdefs.ErrFailedPrecondition)
	case errors.Is(err, sleep.ErrInvalid):
		return fmt.Errorf("%w: %w", err, errdefs.ErrAborted)
	}
	return err
}

// do carries out an order, which is for the sandbox container.
func (z *sleeper) do(ctx context.Context, id string, o sleep.Order) error {
	if z.s == nil || id != z.s.pod.sandbox {
		return fmt.Errorf("%w: container %s is no sandbox", sleep.ErrInvalid, id)
	}
	switch o.Verb {
	case sleep.Watch:
		return z.watch(ctx, o)
	case sleep.Fall:
		return z.fall(ctx, o)
	case sleep.Stay:
		return z.stay(ctx)
	case sleep.Wake:
		return z.rouse(ctx, o.Cause)
	case sleep.End:
		return z.end(ctx, o)
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

// ends reports whether a signal tells a container to end.
func ends(s unix.Signal) bool {
	switch s {
	case 0, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT:
		return false
	}
	return true
}

// warn logs what went wrong where nobody can be told.
func (z *sleeper) warn(err error, what string) {
	if err != nil {
		log.L.WithError(err).Warnf("sandbox %s: %s", z.c.bundle.id, what)
	}
}
