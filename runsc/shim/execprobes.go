package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	localv1 "diapause.dev/api/local/v1"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A shim cannot see who asks containerd to exec: the kubelet for a probe or a hook, or somebody by kubectl. But the
// agent says what the kubelet runs. A process is taken for the kubelet's if it runs exactly that, without a terminal or
// an input. It is answered with success, and nothing is run, in four cases:
//
//   - The pod sleeps: a liveness or readiness probe does not wake it. Nor does a preStop hook, unless the pod is to be
//     woken to end. If the pod could not be woken, a readiness probe is answered with failure.
//   - The agent wants the pod to sleep: a liveness or readiness probe does not keep it awake.
//   - The sandbox waits for its other containers. The kubelet creates the next one only after the startup probe or the
//     postStart hook of the one before has succeeded, and gVisor loads only when all are there.
//   - A container is restored: its postStart hook has run in the life that the snapshot is of.

// probesFile is a file in the bundle of a sandbox container: what the kubelet runs in the pod's containers by exec.
const probesFile = "diapause-probes"

// execCommand is what the kubelet runs.
type execCommand struct {
	Kind      localv1.ExecProbe_Kind `json:"kind,omitempty"`
	Args      []string               `json:"args"`
	Readiness bool                   `json:"readiness,omitempty"` // a readiness probe, and no liveness probe
}

// noteProbes keeps what the agent says that the kubelet runs.
func (b bundle) noteProbes(probes []*localv1.ExecProbe) error {
	if len(probes) == 0 {
		return nil
	}
	all := make(map[string][]execCommand) // by container name
	for _, p := range probes {
		all[p.GetContainer()] = append(all[p.GetContainer()], execCommand{p.GetKind(), p.GetCommand(), p.GetReadiness()})
	}
	data, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, probesFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note the probes of sandbox %s: %w", b.id, err)
	}
	return nil
}

// kinds are what a process of the kubelet may be: one command may serve for several.
type kinds struct{ probe, readiness, startup, postStart, preStop bool }

// kindsOf returns what of the kubelet's a process in a container with that name may be.
func (b bundle) kindsOf(container string, r *task.ExecProcessRequest) (k kinds) {
	if r.Terminal || r.Stdin != "" || container == "" {
		return k
	}
	data, err := os.ReadFile(filepath.Join(b.dir, probesFile))
	if err != nil {
		return k
	}
	var (
		all     map[string][]execCommand
		process specs.Process
	)
	if json.Unmarshal(data, &all) != nil || json.Unmarshal(r.Spec.GetValue(), &process) != nil {
		return k
	}
	for _, c := range all[container] {
		if slices.Equal(c.Args, process.Args) {
			k.probe = k.probe || c.Kind == localv1.ExecProbe_PROBE
			k.readiness = k.readiness || c.Readiness
			k.startup = k.startup || c.Kind == localv1.ExecProbe_STARTUP
			k.postStart = k.postStart || c.Kind == localv1.ExecProbe_POST_START
			k.preStop = k.preStop || c.Kind == localv1.ExecProbe_PRE_STOP
		}
	}
	return k
}

const (
	// probeLimit is how long a pod that is to sleep stays awake for probes that run.
	probeLimit = 10 * time.Second
	// enteringLimit is how long probes are answered for a pod that is to sleep and is not paused. Then the agent may
	// have died.
	enteringLimit = 30 * time.Second
	// probePoll is how often a pod is looked at in which probes run.
	probePoll = 10 * time.Millisecond
)

// probing is that the agent wants the pod to sleep. Its methods may be called concurrently. The zero value says that
// it does not.
type probing struct{ since atomic.Pointer[time.Time] }

// begin has the probes by exec answered from now on, and waits until those have ended that run, for at most probeLimit.
// If they are slow, and were run as before, one might run at any time, and the pod would never sleep.
func (f *probing) begin(ctx context.Context, run func() bool) {
	began := time.Now()
	f.since.Store(&began)
	for run() && time.Since(began) < probeLimit {
		select {
		case <-time.After(probePoll):
		case <-ctx.Done():
			return
		}
	}
}

// end has the probes run again. The pod sleeps, or stays awake.
func (f *probing) end() { f.since.Store(nil) }

// answers reports whether the probes of a pod that is not asleep are answered.
func (f *probing) answers(s *sandbox) bool {
	since := f.since.Load()
	return since != nil && (time.Since(*since) < enteringLimit || s.lease.Held())
}

// onlyProbes reports whether probes run in containers, and nothing else that was started by exec.
func onlyProbes(mu *sync.Mutex, all []*resident) (some bool) {
	mu.Lock()
	defer mu.Unlock()
	for _, x := range all {
		for _, p := range x.execs {
			if !p.probe {
				return false
			}
			some = true
		}
	}
	return some
}

// probed is a probe or a hook that is answered, as if it had run and succeeded. Its methods may be called concurrently.
type probed struct {
	stdout, stderr string
	status         uint32        // its exit status
	once           sync.Once     // closes done
	done           chan struct{} // closed when containerd has asked for its start: it has ended then, too
	at             time.Time     // of its end; set before done is closed
}

// maxProbed bounds the probes of a pod that are answered and not deleted yet. Containerd deletes each at its end.
const maxProbed = 1024

// answeredExecs are the probes and hooks that are answered, and not deleted. The zero value has none. Its methods may
// be called concurrently.
type answeredExecs struct {
	mu  sync.Mutex
	all map[execName]*probed
}

// execName names a process that was added to a container.
type execName struct{ container, exec string }

// of returns a probe that was answered, or nil.
func (a *answeredExecs) of(container, exec string) *probed {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[execName{container, exec}]
}

// answer answers a probe with an exit status.
func (a *answeredExecs) answer(r *task.ExecProcessRequest, status uint32) (*types.Empty, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) >= maxProbed {
		return nil, errgrpc.ToGRPC(fmt.Errorf("exec %s in container %s: %d probes are in progress: %w", r.ExecID, r.ID,
			len(a.all), errdefs.ErrResourceExhausted))
	}
	if a.all == nil {
		a.all = make(map[execName]*probed)
	}
	a.all[execName{r.ID, r.ExecID}] = &probed{
		stdout: r.Stdout, stderr: r.Stderr, status: status, done: make(chan struct{}),
	}
	return &types.Empty{}, nil
}

// forget forgets a probe that was answered.
func (a *answeredExecs) forget(container, exec string) *task.DeleteResponse {
	a.mu.Lock()
	defer a.mu.Unlock()
	resp := &task.DeleteResponse{Pid: 1, ExitedAt: protobuf.ToTimestamp(time.Now())}
	name := execName{container, exec}
	if p := a.all[name]; p != nil {
		resp.ExitStatus = p.status
	}
	delete(a.all, name)
	return resp
}

// forgetAll forgets what was answered for a container that is deleted.
func (a *answeredExecs) forgetAll(container string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.all, func(n execName, _ *probed) bool { return n.container == container })
}

// start ends the probe: it has no output.
func (p *probed) start(ctx context.Context) (*task.StartResponse, error) {
	err := errors.Join(closePipe(ctx, p.stdout), closePipe(ctx, p.stderr))
	if err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("a probe that is not run: %w", err))
	}
	p.once.Do(func() {
		p.at = time.Now()
		close(p.done)
	})
	return &task.StartResponse{Pid: 1}, nil
}

// wait waits for the end of the probe.
func (p *probed) wait(ctx context.Context) (*task.WaitResponse, error) {
	select {
	case <-p.done:
		return &task.WaitResponse{ExitStatus: p.status, ExitedAt: protobuf.ToTimestamp(p.at)}, nil
	case <-ctx.Done():
		return nil, errgrpc.ToGRPC(context.Cause(ctx))
	}
}

func (p *probed) state(r *task.StateRequest) *task.StateResponse {
	resp := &task.StateResponse{ID: r.ID, ExecID: r.ExecID, Pid: 1, Stdout: p.stdout, Stderr: p.stderr}
	select {
	case <-p.done:
		resp.Status, resp.ExitStatus, resp.ExitedAt = tasktypes.Status_STOPPED, p.status, protobuf.ToTimestamp(p.at)
	default:
		resp.Status = tasktypes.Status_CREATED
	}
	return resp
}

// errProbeOver refuses a signal for a probe that has ended.
var errProbeOver = fmt.Errorf("the probe has ended: %w", errdefs.ErrNotFound)

// closePipeLimit bounds how long containerd may take to open its end of a pipe.
const closePipeLimit = 2 * time.Second

// closePipe opens a pipe for writing and closes it, so that who reads it sees its end. A name may be empty.
func closePipe(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, closePipeLimit)
	defer cancel()
	for {
		f, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, unix.ENXIO) { // nobody reads it yet
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("no process reads %s: %w", name, context.Cause(ctx))
		}
	}
}
