package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"diapause.dev/runsc/use"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
	"gvisor.dev/gvisor/pkg/shim/v1/proc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
)

// How often runsc is asked again to delete a container that has ended, and the pause in between.
const (
	deleteRetries = 30
	deletePause   = 50 * time.Millisecond
)

// containers is the part of the service that every container gets.
type containers struct {
	extension.TaskServiceExt
	process *process
	agent   agent
	dir     string // of the bundle for which this service was made: the sandbox's, if there is one
	bundle  bundle // of the pod's sandbox
	pod     pod

	roster     *roster
	progress   *progress
	starter    *starter
	deferred   deferredSignals
	unanswered unanswered
	resizes    resizes
	sessions   use.Sessions
}

func newContainers(proc *process, a agent, p pod, dir string, next extension.TaskServiceExt) *containers {
	c := &containers{
		TaskServiceExt: next, process: proc, agent: a, dir: dir, pod: p,
		bundle: bundle{p.sandbox, filepath.Join(filepath.Dir(dir), p.sandbox)},
		roster: new(roster), deferred: deferredSignals{agent: a, pod: p},
		sessions: use.Sessions{File: a.usedFile(p.sandbox)},
	}
	c.progress = newProgress(a, p, c.bundle, c.roster, next)
	c.starter = &starter{
		next: next, process: proc, bundle: c.bundle, roster: c.roster, progress: c.progress, remove: c.discard,
		underway: make(map[string]*starting), cut: make(map[string]*starting),
	}
	return c
}

// Create creates a container, without the annotations that its pod may not set.
func (c *containers) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if err := annotateFor(c.pod, r.Bundle, c.onNode()); err != nil {
		return nil, err
	}
	created, err := c.createStreams(ctx, r)
	if ctx.Err() == nil {
		if err == nil && c.bundle.id != "" {
			c.roster.await(r.ID)
			go c.starter.exitWithoutStart(r.ID)
		}
		return created, err
	}
	err = errors.Join(ctx.Err(), err)
	if c.progress.incomplete() {
		return nil, c.progress.failRestore(ctx, r.ID, err) // a sandbox that waits for its containers answers nobody
	}
	// A restarted containerd may have asked for the container already, and would then never remove it.
	return nil, fmt.Errorf("create container %s: %w", r.ID, errors.Join(err, c.discard(ctx, r.ID)))
}

// discard removes a created container before anything else learns of it.
func (c *containers) discard(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardLimit)
	defer cancel()
	_, err := c.Delete(ctx, &task.DeleteRequest{ID: id})
	return err
}

// toTheEnd returns a context for the creation of a sandbox. It keeps the caller's deadline, but is not cancelled with
// the caller. If containerd dies, the creation goes on, because a runsc that is killed while it creates a sandbox
// leaves orphans. The next containerd finds the sandbox and removes it.
func toTheEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	out := context.WithoutCancel(ctx)
	if end, ok := ctx.Deadline(); ok {
		return context.WithDeadline(out, end)
	}
	return context.WithCancel(out)
}

// Start starts a container. Given an exec id, it starts another process in the container.
func (c *containers) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	if r.ExecID != "" {
		return c.TaskServiceExt.Start(ctx, r)
	}
	resp, err := c.starter.start(ctx, r, c.starter.startMember)
	if err != nil {
		if errors.Is(err, errKilled) {
			announce(r.ID) // whatever has killed it waits for its exit
		}
		if c.progress.incomplete() {
			err = c.progress.failRestore(ctx, r.ID, err)
		}
		c.progress.startFailed(ctx, r.ID, err)
		c.starter.removeInterrupted(ctx, r.ID)
		return nil, err
	}
	c.progress.began(ctx, r.ID)
	c.starter.recent.end(r.ID)
	return resp, nil
}

// Connect returns the ids of the shim's process and the container's. A containerd that has just started asks this
// first. If it has interrupted a start of the container, Connect waits until the container is removed.
func (c *containers) Connect(ctx context.Context, r *task.ConnectRequest) (*task.ConnectResponse, error) {
	c.starter.settle(ctx, r.ID)
	return c.TaskServiceExt.Connect(ctx, r)
}

// Kill sends a signal to a container, or to a process in it.
func (c *containers) Kill(ctx context.Context, r *task.KillRequest) (*types.Empty, error) {
	if r.ExecID != "" {
		return c.TaskServiceExt.Kill(ctx, r)
	}
	first, known := c.roster.signalled(r.ID, unix.Signal(r.Signal))
	if !known {
		return nil, fmt.Errorf("container %s, which gets signal %v, is deleted: %w", r.ID, unix.Signal(r.Signal),
			errdefs.ErrNotFound)
	}
	if unix.Signal(r.Signal) == unix.SIGKILL {
		c.progress.watchKilled(ctx, r.ID)
	}
	canceled := c.starter.cancel(r.ID)
	if first && !canceled && unix.Signal(r.Signal) == unix.SIGKILL && c.killedBeforeReported(ctx, r.ID) {
		slog.Warn("the container was killed before anyone heard of its start: ending the restored sandbox",
			"sandbox", c.bundle.id, "container", r.ID)
		if !c.bundle.gone() { // or it has ended by itself, and containerd removes what is left
			c.pod.undone()
		}
		return &types.Empty{}, c.bundle.kill()
	}
	if unix.Signal(r.Signal) == unix.SIGKILL && c.starter.releaseCreated(r.ID) {
		ended, err := c.progress.killIncomplete(ctx, r.ID)
		if ended {
			c.process.neverStarted.Store(r.ID, true)
		}
		announce(r.ID)
		return &types.Empty{}, err
	}
	return c.kill(ctx, r)
}

// killedBeforeReported reports whether a kill hits a restored container before the kubelet can know that it was
// started.
//
// If the kubelet ends while it starts a container, containerd kills that container at once. The restarted kubelet
// then makes another container in the same sandbox (containerd, internal/cri/server, StartContainer). That container
// would start anew, although the pod counts as restored. If the sandbox ends instead, the kubelet makes another
// sandbox, which is restored. A deliberate stop asks the container to end before it kills it: it is not
// meant.
//
// Nor does it concern a container that has ended by itself, which containerd kills before it deletes it
// (internal/cri/server/events, with WithProcessKill), nor one that starts anew because an earlier one has ended. These
// are the kubelet's to start again, and their neighbors run on.
func (c *containers) killedBeforeReported(ctx context.Context, id string) bool {
	return c.starter.recent.restoredNow(id) && c.status(ctx, id) != tasktypes.Status_STOPPED
}

// killTries bounds how often a container is killed.
const killTries = 3

// kill has runsc signal a container. If runsc cannot kill it because its sandbox is paused, incomplete or hangs, the
// sandbox is ended, also if whoever asked has ceased to wait. It may have been paused when runsc looked, and run on
// since: then runsc tries again.
func (c *containers) kill(ctx context.Context, r *task.KillRequest) (resp *types.Empty, err error) {
	if unix.Signal(r.Signal) != unix.SIGKILL {
		return c.signal(ctx, r)
	}
	ctx = context.WithoutCancel(ctx)
	for range killTries {
		resp, err = c.signal(ctx, r)
		if err == nil {
			return resp, nil
		}
		hung := errors.Is(err, errHung)
		status := tasktypes.Status_UNKNOWN
		if !hung {
			status = c.status(ctx, r.ID)
		}
		if hung || status == tasktypes.Status_PAUSED || c.progress.incomplete() {
			slog.Warn("runsc cannot kill a container, whose sandbox is paused, not restored or hangs: ending the sandbox",
				"sandbox", c.bundle.id, "container", r.ID, "error", err)
			if ended, err := c.progress.killIncomplete(ctx, r.ID); ended {
				return &types.Empty{}, err
			}
			return &types.Empty{}, c.bundle.kill()
		}
		if status != tasktypes.Status_RUNNING {
			break
		}
	}
	return resp, err
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

// status returns the state of a container, or UNKNOWN if it cannot find out. It is asked for after something has
// failed, perhaps because ctx has ended, and so takes no notice of that.
func (c *containers) status(ctx context.Context, id string) tasktypes.Status {
	r, err := c.stateFor(context.WithoutCancel(ctx), forStatus, &task.StateRequest{ID: id})
	if err != nil {
		return tasktypes.Status_UNKNOWN
	}
	return r.Status
}

// State returns the state of a container. If the sandbox hangs, the error is of kind errHung.
func (c *containers) State(ctx context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	return c.stateFor(ctx, forState, r)
}

// stateFor returns the state of a container. If the sandbox hangs, the error is of kind errHung.
func (c *containers) stateFor(ctx context.Context, q inquiry, r *task.StateRequest) (*task.StateResponse, error) {
	c.starter.releaseUnstartable(r.ID)
	return passOn(ctx, &c.unanswered, q, r.ID, c.TaskServiceExt.State, r)
}

// Delete removes a container that has ended, or what is left of a process in it.
//
// Runsc refuses to delete a container while its killed sandbox still exits. If the container was paused when its
// sandbox ended, runsc refuses for good. So Delete removes a container that has ended by force, and repeatedly.
// Containerd would try again too, but only after seconds.
//
// GVisor's shim deletes a process only when nobody holds its output (pkg/shim/v1/proc, execProcess), and answers no
// Pids until then. A server that it has left behind may hold it as long as it runs. Then the error is of kind errHung.
func (c *containers) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if r.ExecID != "" {
		return passOn(ctx, &c.unanswered, forOutput, r.ID, c.TaskServiceExt.Delete, r)
	}
	c.progress.settle(r.ID)
	if _, err := c.progress.killIncomplete(ctx, r.ID); err != nil {
		return nil, err
	}
	remove := c.TaskServiceExt.Delete
	if c.starter.releaseCreated(r.ID) {
		remove = c.starter.removeCreated
	}
	resp, err := remove(ctx, r)
	for range deleteRetries {
		if err == nil || c.status(ctx, r.ID) != tasktypes.Status_STOPPED {
			break
		}
		slog.Warn("runsc does not delete a container that has ended: forcing it", "container", r.ID, "error", err)
		if forced := c.force(ctx, r.ID); forced != nil {
			select {
			case <-time.After(deletePause):
			case <-ctx.Done():
				return nil, fmt.Errorf("%w; by force: %w", err, forced)
			}
		}
		resp, err = remove(ctx, r)
	}
	if err == nil || isNotFound(err) { // an earlier request that was given up has deleted it
		c.starter.recent.forget(r.ID)
		c.process.terminals.forget(r.ID)
		c.bundle.forgetTerminal(r.ID)
		c.progress.pending.forget(r.ID)
		c.roster.forget(r.ID)
	}
	return resp, err
}

// force makes runsc delete a container regardless of the state that runsc takes it to be in.
func (c *containers) force(ctx context.Context, id string) error {
	cmd, err := c.runtime(ctx)
	if err != nil {
		return err
	}
	return cmd.Delete(ctx, id, &runsccmd.DeleteOpts{Force: true})
}

// runtime returns runsc as gVisor's shim runs it.
func (c *containers) runtime(ctx context.Context) (*runsccmd.Runsc, error) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return nil, err
	}
	var s runsc.State
	if err := s.Load(c.dir); err != nil {
		return nil, fmt.Errorf("options of the shim: %w", err)
	}
	return proc.NewRunsc(s.Options.Root, c.dir, namespace, s.Options.BinaryName, s.Options.RunscConfig, nil), nil
}

// Stats returns what a container uses, once its sandbox can be asked. Containerd asks for it on its own, at any time.
func (c *containers) Stats(ctx context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	if err := c.progress.askable(ctx, r.ID); err != nil {
		return nil, err
	}
	return passOn(ctx, &c.unanswered, forStats, r.ID, c.TaskServiceExt.Stats, r)
}

// Pids returns the processes of a container, once its sandbox can be asked.
func (c *containers) Pids(ctx context.Context, r *task.PidsRequest) (*task.PidsResponse, error) {
	if err := c.progress.askable(ctx, r.ID); err != nil {
		return nil, err
	}
	return passOn(ctx, &c.unanswered, forPids, r.ID, c.TaskServiceExt.Pids, r)
}
