package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
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

// A shim cannot see who asks containerd to exec: the kubelet for a probe, or somebody by kubectl. But the agent says
// what the pod's probes run. A process is taken for a probe if it runs exactly that, without a terminal or an input.
// While the pod sleeps, a probe succeeds and does not wake it.

// probesFile is a file in the bundle of a sandbox container: the commands of the pod's probes by exec.
const probesFile = "diapause-probes"

// commands are the commands of probes, by container name.
type commands map[string][][]string

// noteProbes keeps what the agent says of the pod's probes.
func (b bundle) noteProbes(probes []*localv1.ExecProbe) error {
	if len(probes) == 0 {
		return nil
	}
	all := make(commands)
	for _, p := range probes {
		all[p.GetContainer()] = append(all[p.GetContainer()], p.GetCommand())
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

// isProbe reports whether a process is a probe of a container with that name.
func (b bundle) isProbe(container string, r *task.ExecProcessRequest) bool {
	if r.Terminal || r.Stdin != "" || container == "" {
		return false
	}
	data, err := os.ReadFile(filepath.Join(b.dir, probesFile))
	if err != nil {
		return false
	}
	var (
		all     commands
		process specs.Process
	)
	if json.Unmarshal(data, &all) != nil || json.Unmarshal(r.Spec.GetValue(), &process) != nil {
		return false
	}
	return slices.ContainsFunc(all[container], func(c []string) bool { return slices.Equal(c, process.Args) })
}

// probed is a probe that is answered for a container that sleeps, as if it had run and succeeded. Its methods may be
// called concurrently.
type probed struct {
	stdout, stderr string
	once           sync.Once     // closes done
	done           chan struct{} // closed when containerd has asked for its start: it has ended then, too
	at             time.Time     // of its end; set before done is closed
}

// probed returns a probe that was answered, or nil.
func (z *sleeper) probed(container, exec string) *probed {
	if exec == "" {
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if x := z.all[container]; x != nil {
		return x.probes[exec]
	}
	return nil
}

// answerProbe answers a probe of a container that sleeps.
func (z *sleeper) answerProbe(x *resident, r *task.ExecProcessRequest) *types.Empty {
	z.mu.Lock()
	defer z.mu.Unlock()
	if x.probes == nil {
		x.probes = make(map[string]*probed)
	}
	x.probes[r.ExecID] = &probed{stdout: r.Stdout, stderr: r.Stderr, done: make(chan struct{})}
	return &types.Empty{}
}

// start ends the probe: it has no output.
func (p *probed) start(ctx context.Context) (*task.StartResponse, error) {
	err := errors.Join(closePipe(ctx, p.stdout), closePipe(ctx, p.stderr))
	if err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("a probe of a pod that sleeps: %w", err))
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
		return &task.WaitResponse{ExitedAt: protobuf.ToTimestamp(p.at)}, nil
	case <-ctx.Done():
		return nil, errgrpc.ToGRPC(context.Cause(ctx))
	}
}

func (p *probed) state(r *task.StateRequest) *task.StateResponse {
	resp := &task.StateResponse{ID: r.ID, ExecID: r.ExecID, Pid: 1, Stdout: p.stdout, Stderr: p.stderr}
	select {
	case <-p.done:
		resp.Status, resp.ExitedAt = tasktypes.Status_STOPPED, protobuf.ToTimestamp(p.at)
	default:
		resp.Status = tasktypes.Status_CREATED
	}
	return resp
}

// forgetProbe forgets a probe that was answered.
func (z *sleeper) forgetProbe(container, exec string) *task.DeleteResponse {
	z.mu.Lock()
	defer z.mu.Unlock()
	resp := &task.DeleteResponse{Pid: 1, ExitedAt: protobuf.ToTimestamp(time.Now())}
	if x := z.all[container]; x != nil {
		delete(x.probes, exec)
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
