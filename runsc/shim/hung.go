package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// A sandbox may hang: its process is there, and answers nothing. Runsc then waits for it, and gVisor's shim for runsc,
// holding a lock that all other requests for the container need (pkg/shim/v1/proc, Init). When a process has ended, it
// waits without a limit (pkg/shim/v1/runsc, checkProcesses). So the shim waits for gVisor's shim for a limited time.
// Containerd gets the answers that it needs to remove the pod: it asks for a container's state first.

// errHung is the kind of error of a request that is not answered in time.
var errHung = fmt.Errorf("the sandbox does not answer: %w", errdefs.ErrUnavailable)

// inquiry is a kind of request to gVisor's shim, and how long it may take.
type inquiry struct {
	name string
	wait time.Duration // until it counts as not answered
	most time.Duration // until it is given up, and its runsc is killed
	once bool          // it is not asked again while it is under way, though not answered in time
}

var (
	// Containerd waits for two seconds.
	forState = inquiry{"state", 1500 * time.Millisecond, 1500 * time.Millisecond, true}
	// Nobody else waits for the answer to a question of the shim's own.
	forStatus = inquiry{"status", 10 * time.Second, 10 * time.Second, false}
	// Containerd asks for statistics once a second, without a limit of its own, and does not exit before it has them. Its
	// other requests for the container wait for gVisor's lock meanwhile.
	forStats = inquiry{"statistics", time.Second, time.Second, true}
	// Containerd waits for five seconds when it starts.
	forPids = inquiry{"processes", 4 * time.Second, 4 * time.Second, true}
	// A container's grace period begins once the signal counts as sent.
	forSignal = inquiry{"signal", 5 * time.Second, 2 * time.Minute, false}
	// Runc's shim waits as long for the output of a process that has ended (cmd/containerd-shim-runc-v2/process, exec).
	forOutput = inquiry{"output", 2 * time.Second, 2 * time.Second, false}
	// A kubelet waits for two minutes. While a checkpoint is made, a sandbox may not answer for some seconds.
	forKill = inquiry{"kill", 20 * time.Second, 20 * time.Second, false}
)

// passOn passes a request for a container to gVisor's shim. If it is not answered in time, the error is of kind
// errHung.
func passOn[R, A any](ctx context.Context, u *unanswered, q inquiry, id string,
	f func(context.Context, R) (A, error), r R,
) (none A, err error) {
	hung := fmt.Errorf("%s of container %s: %w", q.name, id, errHung)
	if q.once && u.has(q, id) {
		return none, hung
	}
	type result struct {
		answer A
		err    error
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.most)
	done := make(chan result, 1)
	go func() {
		defer cancel()
		answer, err := f(limited, r)
		if err != nil && limited.Err() != nil {
			err = fmt.Errorf("%w: %w", hung, err)
		}
		done <- result{answer, err}
	}()
	select {
	case d := <-done:
		return d.answer, d.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(q.wait):
		err = hung
	}
	u.add(q, id, 1)
	go func() {
		<-done
		u.add(q, id, -1)
	}()
	return none, err
}

// unanswered counts the requests to gVisor's shim that nobody waits for any more and that are still under way. Its
// methods may be called concurrently. The zero value has none.
type unanswered struct {
	mu  sync.Mutex
	all map[unansweredKey]int
}

type unansweredKey struct{ inquiry, id string }

func (u *unanswered) add(q inquiry, id string, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = make(map[unansweredKey]int)
	}
	k := unansweredKey{q.name, id}
	if u.all[k] += n; u.all[k] == 0 {
		delete(u.all, k)
	}
}

func (u *unanswered) has(q inquiry, id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all[unansweredKey{q.name, id}] > 0
}

// State returns the state of a container. If the sandbox hangs, the error is of kind errHung.
func (c *containers) State(ctx context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	return c.stateFor(ctx, forState, r)
}

// stateUnanswered returns the state of a container in a sandbox that hangs, or of a process that was added to it: as
// far as is known it has not ended. Containerd asks for that of an added process while it starts, and gVisor's shim
// answers only when it has started, which takes seconds on a busy node or while the sandbox is paused.
func (z *sleepService) stateUnanswered(id, exec string) (*task.StateResponse, error) {
	x, pid, err := z.remembered(id)
	if err != nil {
		return nil, err
	}
	if exec != "" {
		z.mu.Lock()
		defer z.mu.Unlock()
		return x.execState(exec)
	}
	status := tasktypes.Status_CREATED
	if z.c.starter.recent.over(id) || z.s != nil && id == z.s.pod.sandbox && z.s.runs.Load() {
		status = tasktypes.Status_RUNNING
	}
	if z.suspended.Load() {
		status = tasktypes.Status_PAUSED
	}
	return &task.StateResponse{
		ID: id, Bundle: x.bundle, Pid: uint32(pid), Status: status,
		Stdin: x.io.Stdin, Stdout: x.io.Stdout, Stderr: x.io.Stderr, Terminal: x.io.Terminal,
	}, nil
}

// execState returns the state of a process that was added to the container and is starting or runs. The caller holds
// residents.mu.
func (x *resident) execState(id string) (*task.StateResponse, error) {
	p, ok := x.execs[id]
	if !ok {
		return nil, fmt.Errorf("state of process %s of container %s: %w", id, x.id, errHung)
	}
	return &task.StateResponse{
		ID: x.id, ExecID: id, Bundle: x.bundle, Status: tasktypes.Status_CREATED,
		Stdin: p.io.Stdin, Stdout: p.io.Stdout, Stderr: p.io.Stderr, Terminal: p.io.Terminal,
	}, nil
}

// pidsUnanswered returns the processes of a container in a sandbox that hangs: there is one, as far as is known. A
// containerd that starts just then would remove a container that has none, and before 2.4 also one for which it gets an
// error (core/runtime/v2, loadShim).
func (r *residents) pidsUnanswered(id string) (*task.PidsResponse, error) {
	_, pid, err := r.remembered(id)
	if err != nil {
		return nil, err
	}
	return &task.PidsResponse{Processes: []*tasktypes.ProcessInfo{{Pid: uint32(pid)}}}, nil
}

// remembered returns a container of this process, and the process that containerd knows for it, that of its sandbox.
func (r *residents) remembered(id string) (*resident, int, error) {
	x := r.of(id)
	if x == nil {
		return nil, 0, fmt.Errorf("container %s: %w", id, errHung)
	}
	if pid := r.pidOf(id, 0); pid != 0 {
		return x, int(pid), nil
	}
	pid, err := bundle{id, x.bundle}.process()
	return x, pid, err
}

// signal has gVisor's shim send a signal to a container. A signal that tells the container to end and leaves it time
// for that counts as sent if the sandbox hangs: it arrives once the sandbox answers again, and SIGKILL comes in time.
func (c *containers) signal(ctx context.Context, r *task.KillRequest) (*types.Empty, error) {
	c.starter.releaseUnstartable(r.ID)
	q := forSignal
	if unix.Signal(r.Signal) == unix.SIGKILL {
		q = forKill
	}
	resp, err := passOn(ctx, &c.unanswered, q, r.ID, c.TaskServiceExt.Kill, r)
	if errors.Is(err, errHung) && asksToEnd(r) {
		slog.Warn("a signal has not arrived yet", "container", r.ID, "signal", unix.Signal(r.Signal), "error", err)
		return &types.Empty{}, nil
	}
	return resp, err
}
