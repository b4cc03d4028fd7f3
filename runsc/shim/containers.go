package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	localv1 "diapause.dev/api/local/v1"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
	"gvisor.dev/gvisor/pkg/shim/v1/proc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
	pb "gvisor.dev/gvisor/pkg/shim/v1/taskserver/task_server_go_proto"
)

// loadedLimit is how long the question whether a sandbox is restored may wait for its answer: the
// sandbox answers at once if it is.
const loadedLimit = 300 * time.Millisecond

// statsLimit is how long the question what a container uses may wait for its answer. Containerd asks it
// once a second, without a limit of its own, and does not end before it has the answer; and whatever
// else it asks of the container meanwhile, mostly with a limit of two seconds, waits for gVisor's lock.
const statsLimit = time.Second

// How often, and with what pause, runsc is asked again to delete a container that has ended.
const (
	deleteRetries = 30
	deletePause   = 50 * time.Millisecond
)

// abandonLimit is how long the removal of a container that was not started may take. Its shim ends then, which has
// containerd remove it by force.
const abandonLimit = 5 * time.Second

// errKilled is the cause of a start that was given up because its container is to be killed.
var errKilled = errors.New("the container was killed while it started")

// containers is the part of the service that every container gets.
//
// It sees to it that a restore which fails half-way ends the sandbox: gVisor restores a sandbox
// once its last container starts, and when that fails, the containers that were started before it
// can be neither waited for nor killed, for they never came to life.
//
// GVisor's shim holds a lock for as long as a container starts, which for the last one of a
// restored pod is until the image is loaded; so a kill meanwhile gives up the start, instead of
// waiting for it.
type containers struct {
	extension.TaskServiceExt
	agent   agent
	dir     string // of the bundle by which this service was made
	bundle  bundle // of the pod's sandbox
	pod     pod
	reports sync.WaitGroup // reports to the agent under way
	endings endings
	starts  starts

	restored atomic.Bool // the sandbox is not being restored, or no longer
	asked    atomic.Bool // to start a container

	resizes resizes

	mu       sync.Mutex
	starting map[string]*starting          // by container id
	loading  map[string]context.CancelFunc // likewise; of those whose files are waited for
	telling  map[string]context.CancelFunc // likewise; of those with whose start the pod was restored
	leaving  map[string]bool               // likewise; of those that are seen out
}

// starting is a start under way.
type starting struct {
	cancel context.CancelCauseFunc
	killed bool // the container was killed meanwhile
}

func newContainers(a agent, p pod, dir string, next extension.TaskServiceExt) *containers {
	b := bundle{p.sandbox, filepath.Join(filepath.Dir(dir), p.sandbox)}
	return &containers{
		TaskServiceExt: next, agent: a, dir: dir, bundle: b, pod: p,
		starting: make(map[string]*starting), leaving: make(map[string]bool),
		loading: make(map[string]context.CancelFunc), telling: make(map[string]context.CancelFunc),
	}
}

// Create creates a container, without what its pod may not ask of gVisor.
func (c *containers) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if err := annotate(r.Bundle, c.onNode()); err != nil {
		return nil, err
	}
	created, err := c.createStreams(ctx, r)
	if ctx.Err() == nil {
		return created, err
	}
	err = errors.Join(ctx.Err(), err)
	if c.unrestored(ctx, r.ID) {
		return nil, c.lost(ctx, r.ID, err) // a sandbox that waits for its containers answers nobody
	}
	// The next containerd may have asked for the container already, and then never removes it.
	return nil, fmt.Errorf("create container %s: %w", r.ID, errors.Join(err, c.discard(ctx, r.ID)))
}

// incomplete reports whether the sandbox is restored as a whole and not all of its containers have been started. What
// the one had in memory that has just failed to start is lost then, even if the sandbox has loaded it.
func (c *containers) incomplete() bool {
	o, ok := c.bundle.ordered()
	if !ok || o.Rootfs {
		return false
	}
	n, err := c.bundle.noted(startedPrefix)
	return err != nil || n < o.Containers
}

// try notes that a container is about to be started in a sandbox that is restored as a whole. It is an error if that
// was tried before and the pod is not restored: that start was given up, and the sandbox is about to be ended. It may
// have loaded its memory, so that the container would start anew in it.
func (c *containers) try(id string) error {
	if !c.incomplete() {
		return nil
	}
	name := c.pod.container
	if name == "" {
		name = id
	}
	n, err := c.bundle.note(triedPrefix, name)
	if err == nil && n == 0 {
		err = fmt.Errorf("container %s: it was given up as it started before", id)
	}
	return err
}

// abandon ends a container that was created and not started, and reports whether it is one. GVisor's shim knows no end
// of such a container, and holds its output open: a restarted containerd would wait for either without a limit, and so
// would a removal. A start that fails is what makes it let go (pkg/shim/v1/proc, createdState); this one does not come
// to run anything.
func (c *containers) abandon(id string) bool {
	if c.bundle.id == "" || id == c.bundle.id || c.starts.known(id) {
		return false
	}
	c.letGo(id)
	return true
}

// letGo has gVisor's shim take a container that was not started for ended, see abandon. It does nothing if gVisor has
// learned that the sandbox is gone, see abandonLimit.
func (c *containers) letGo(id string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.TaskServiceExt.Start(ctx, &task.StartRequest{ID: id})
	log.L.WithError(err).Infof("container %s is not started any more", id)
}

// discard removes a created container before anybody learns of it.
func (c *containers) discard(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardLimit)
	defer cancel()
	_, err := c.Delete(ctx, &task.DeleteRequest{ID: id})
	return err
}

// toTheEnd returns a context for the creation of a sandbox. It keeps the caller's deadline, and outlives the caller. If
// containerd dies, the creation goes on: a runsc that is killed while it creates a sandbox leaves orphans. The next
// containerd finds the sandbox and removes it.
func toTheEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	out := context.WithoutCancel(ctx)
	if end, ok := ctx.Deadline(); ok {
		return context.WithDeadline(out, end)
	}
	return context.WithCancel(out)
}

// Start starts a container or, given an exec id, another process in it.
func (c *containers) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	if r.ExecID != "" {
		return c.TaskServiceExt.Start(ctx, r)
	}
	resp, err := c.start(ctx, r, c.begin)
	if err != nil {
		if errors.Is(err, errKilled) {
			announce(r.ID) // whoever has killed it waits for its exit
		}
		if c.incomplete() || c.unrestored(ctx, r.ID) {
			err = c.lost(ctx, r.ID, err)
		}
		c.failed(ctx, r.ID, err)
		return nil, err
	}
	c.began(ctx, r.ID)
	c.starts.end(r.ID)
	return resp, nil
}

// began notes the start of a container in a sandbox that is restored. With the last one the pod is
// restored, and the agent hears of it before containerd does.
func (c *containers) began(ctx context.Context, id string) {
	o, ok := c.bundle.ordered()
	if !ok {
		return
	}
	n, err := c.bundle.note(startedPrefix, c.part(o, id))
	if err != nil {
		log.L.WithError(err).Warnf("the agent is not told that the pod of sandbox %s is restored", c.bundle.id)
	} else if n == o.Containers {
		c.reportComplete(ctx, id, c.reportOf(o, nil))
	}
	if o.Rootfs {
		c.awaitFiles(ctx, o, id)
	}
}

// start runs f, which starts a container; Kill of the container ends the context of f.
func (c *containers) start(ctx context.Context, r *task.StartRequest,
	f func(context.Context, *task.StartRequest) (*task.StartResponse, error),
) (*task.StartResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &starting{cancel: cancel}
	c.asked.Store(true)
	c.mu.Lock()
	c.starting[r.ID] = s
	c.starts.begin(r.ID)
	c.mu.Unlock()
	resp, err := f(ctx, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.killed { // perhaps too late for f
		resp, err = nil, errors.Join(errKilled, err)
	}
	if err != nil {
		c.starts.forget(r.ID) // before a kill may find that it is no longer under way
	}
	delete(c.starting, r.ID)
	return resp, err
}

// interrupt has a container's start given up, and reports whether it is under way.
func (c *containers) interrupt(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.starting[id]
	if s == nil {
		return false
	}
	s.killed = true
	s.cancel(errKilled)
	return true
}

// Kill sends a signal to a container or to a process in it.
func (c *containers) Kill(ctx context.Context, r *task.KillRequest) (*types.Empty, error) {
	if r.ExecID != "" {
		return c.TaskServiceExt.Kill(ctx, r)
	}
	first := c.endings.told(r.ID, unix.Signal(r.Signal))
	if unix.Signal(r.Signal) == unix.SIGKILL {
		c.seeOut(ctx, r.ID)
	}
	interrupted := c.interrupt(r.ID)
	if first && !interrupted && unix.Signal(r.Signal) == unix.SIGKILL && c.unheard(r.ID) {
		log.L.Warnf("container %s was killed before anyone heard of its start: ending restored sandbox %s", r.ID, c.bundle.id)
		return &types.Empty{}, c.bundle.kill()
	}
	if unix.Signal(r.Signal) == unix.SIGKILL && c.abandon(r.ID) {
		_, err := c.doom(ctx, r.ID)
		announce(r.ID)
		return &types.Empty{}, err
	}
	resp, err := c.TaskServiceExt.Kill(ctx, r)
	if err == nil || errdefs.IsNotFound(err) || unix.Signal(r.Signal) != unix.SIGKILL {
		return resp, err
	}
	if c.status(ctx, r.ID) != tasktypes.Status_PAUSED && !c.unrestored(ctx, r.ID) {
		return resp, err
	}
	log.L.WithError(err).Warnf("runsc cannot kill container %s, whose sandbox is paused or not restored: ending "+
		"sandbox %s", r.ID, c.bundle.id)
	if err := c.bundle.kill(); err != nil {
		return nil, err
	}
	return &types.Empty{}, nil
}

// status returns the state of a container, UNKNOWN when it cannot be told.
func (c *containers) status(ctx context.Context, id string) tasktypes.Status {
	r, err := c.State(ctx, &task.StateRequest{ID: id})
	if err != nil {
		return tasktypes.Status_UNKNOWN
	}
	return r.Status
}

// Delete removes a container that has ended, or what is left of a process in it.
//
// Runsc refuses to delete a container while its sandbox, killed, is still going, and for good one
// that was paused when its sandbox ended; so a container that has ended is deleted by force and
// repeatedly. Containerd would try again too, but only after seconds.
func (c *containers) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if r.ExecID != "" {
		return c.TaskServiceExt.Delete(ctx, r)
	}
	c.giveUp(r.ID, c.loading)
	c.giveUp(r.ID, c.telling)
	c.reports.Wait()
	if _, err := c.doom(ctx, r.ID); err != nil {
		return nil, err
	}
	if c.abandon(r.ID) {
		defer time.AfterFunc(abandonLimit, func() {
			log.L.Errorf("container %s, which was not started, is not let go: its shim ends", r.ID)
			os.Exit(1)
		}).Stop()
	}
	resp, err := c.TaskServiceExt.Delete(ctx, r)
	for range deleteRetries {
		if err == nil || c.status(ctx, r.ID) != tasktypes.Status_STOPPED {
			break
		}
		log.L.WithError(err).Warnf("runsc does not delete container %s, which has ended: forcing it", r.ID)
		if forced := c.force(ctx, r.ID); forced != nil {
			select {
			case <-time.After(deletePause):
			case <-ctx.Done():
				return nil, fmt.Errorf("%w; by force: %w", err, forced)
			}
		}
		resp, err = c.TaskServiceExt.Delete(ctx, r)
	}
	if err == nil {
		c.endings.forget(r.ID)
		c.starts.forget(r.ID)
		c.forgetTerminal(r.ID)
	}
	return resp, err
}

// doom ends a sandbox that waits for its containers before it is restored, when one of them is killed or deleted.
// The output of that container would not end otherwise.
func (c *containers) doom(ctx context.Context, id string) (doomed bool, err error) {
	if id == c.bundle.id || c.restored.Load() || !c.unrestored(ctx, id) {
		return false, nil
	}
	log.L.Warnf("container %s is to go before sandbox %s is restored: ending the sandbox", id, c.bundle.id)
	return true, c.bundle.kill()
}

// force has runsc delete a container whatever state it believes it to be in.
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

// Stats returns what a container uses. Containerd asks of itself, at any time; the sentry of a sandbox
// that is being restored dies of the question, for the kernel that is to be looked into is not there
// yet (runsc/boot, Loader.pidsCount).
func (c *containers) Stats(ctx context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	if err := c.askable(ctx, r.ID); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statsLimit)
	defer cancel()
	return c.TaskServiceExt.Stats(ctx, r)
}

// Pids returns the processes of a container, but not while its sandbox is being restored.
func (c *containers) Pids(ctx context.Context, r *task.PidsRequest) (*task.PidsResponse, error) {
	if err := c.askable(ctx, r.ID); err != nil {
		return nil, err
	}
	return c.TaskServiceExt.Pids(ctx, r)
}

// askable returns an error while the sandbox is being restored.
func (c *containers) askable(ctx context.Context, id string) error {
	if c.restored.Load() {
		return nil
	}
	switch err := c.awaitRestored(ctx, id); {
	case errdefs.IsNotFound(err):
		return nil // of a container that is not there, who asks may learn that
	case err != nil:
		return fmt.Errorf("container %s: its sandbox is being restored: %w", id, errdefs.ErrUnavailable)
	}
	_, ordered := c.bundle.ordered()
	c.restored.Store(ordered) // an order may still come
	return nil
}

// unrestored reports whether the sandbox of a container is to be restored and is not, be it that
// the restore failed or that it is not complete. One whose root file systems alone are restored runs
// all the while.
func (c *containers) unrestored(ctx context.Context, id string) bool {
	return c.awaitRestored(ctx, id) != nil
}

// awaitRestored returns nil if the sandbox of a container is restored, or is not to be, within loadedLimit.
func (c *containers) awaitRestored(ctx context.Context, id string) error {
	if o, ok := c.bundle.ordered(); !ok || o.Rootfs {
		return nil
	}
	server := runsc.NewGvisorTaskServer(c.TaskServiceExt)
	if server == nil {
		return errdefs.ErrUnavailable
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadedLimit)
	defer cancel()
	_, err := server.Wait(ctx, &pb.WaitRequest{Id: id, WaitType: pb.WaitRequest_RESTORE})
	return errgrpc.ToNative(err)
}

// lost ends a sandbox whose restore failed at the start of a container, and tells the agent. It
// returns the error to answer with.
func (c *containers) lost(ctx context.Context, id string, err error) error {
	o, _ := c.bundle.ordered()
	log.L.WithError(err).Errorf("restore of sandbox %s, request %q, failed at container %s", c.bundle.id, o.Request, id)
	err = fmt.Errorf("restore sandbox %s, request %q, container %s: %w", c.bundle.id, o.Request, id, untraced(err))
	c.report(ctx, id, c.reportOf(o, err))
	if err := c.bundle.kill(); err != nil {
		log.L.WithError(err).Errorf("end sandbox %s", c.bundle.id)
	}
	c.emptyVolumes(o)
	return err
}

// reportOf is what the agent is told: that the pod is restored, or why it is not.
func (c *containers) reportOf(o order, err error) *localv1.ReportRestoreRequest {
	req := &localv1.ReportRestoreRequest{
		Request: o.Request, SandboxId: c.bundle.id, Snapshot: o.Snapshot, Annotations: c.pod.annotations,
		Complete: err == nil,
	}
	if err != nil {
		req.Error = err.Error()
	}
	return req
}

// report tells the agent how a restore went on, without keeping the caller waiting. The removal of the container waits
// for it no longer than briefWait.
func (c *containers) report(ctx context.Context, id string, req *localv1.ReportRestoreRequest) {
	ctx = c.while(ctx, id, c.telling)
	c.reports.Add(1)
	go func() {
		defer c.reports.Done()
		defer c.giveUp(id, c.telling)
		sending, done := lingering(ctx)
		defer done()
		if err := c.agent.report(sending, req); err != nil {
			log.L.WithError(err).Warnf("the agent was not told how the restore of sandbox %s went on", c.bundle.id)
		}
	}()
}

// maxRuntimeError bounds what is told of an error of runsc, in bytes.
const maxRuntimeError = 600

// untraced makes an error of gVisor fit to be read: without the goroutine's stack and the map of all files
// that it appends when a load fails, and not longer than anyone reads. What is cut off is in the log.
func untraced(err error) error {
	err = errgrpc.ToNative(err)
	text := err.Error()
	for _, end := range []string{"\ngoroutine ", ", map: map["} {
		text, _, _ = strings.Cut(text, end)
	}
	if n := len(text); n > maxRuntimeError {
		text = text[:maxRuntimeError/2] + " [...] " + text[n-maxRuntimeError/2:]
	}
	if text == err.Error() {
		return err
	}
	return errors.New(strings.ToValidUTF8(strings.TrimRight(text, ": \n"), ""))
}
