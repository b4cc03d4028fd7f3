package shim

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"diapause.dev/runsc/use"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/protobuf"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
	"gvisor.dev/gvisor/pkg/shim/v1/proc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	"gvisor.dev/gvisor/pkg/shim/v1/runsccmd"
	pb "gvisor.dev/gvisor/pkg/shim/v1/taskserver/task_server_go_proto"
)

// restoredLimit bounds the wait for gVisor's answer whether a sandbox is restored. If it is, gVisor answers as soon as
// a runsc has started.
const restoredLimit = 300 * time.Millisecond

// How often runsc is asked again to delete a container that has ended, and the pause in between.
const (
	deleteRetries = 30
	deletePause   = 50 * time.Millisecond
)

// abandonLimit bounds the removal of a container that was not started.
const abandonLimit = 5 * time.Second

// errKilled is the cause of a start that was given up because a kill of its container has arrived.
var errKilled = errors.New("the container was killed while it started")

// containers is the part of the service that every container gets.
//
// It ends the sandbox if a restore fails halfway. GVisor restores a sandbox once its last container starts. If that
// start fails, the containers that were started before it can be neither waited for nor killed, because they never
// came to life.
//
// GVisor's shim holds a lock while a container starts. For the last container of a restored pod, that is until the
// image is loaded. So a kill in that time cancels the start instead of waiting for it.
type containers struct {
	extension.TaskServiceExt
	agent   agent
	dir     string // of the bundle for which this service was made: the sandbox's, if there is one
	bundle  bundle // of the pod's sandbox
	pod     pod
	pending pending // for instance reports to the agent
	roster  roster
	starts  starts

	// failure reports that the sandbox as a whole is not restored. The agent counts the reports, and containerd kills
	// and then deletes a container whose start has failed.
	failure    sync.Once
	unanswered unanswered

	resizes  resizes
	holds    holds
	sessions use.Sessions
	responds responder

	mu       sync.Mutex
	starting map[string]*starting          // by container id
	loading  map[string]context.CancelFunc // likewise; containers that wait for their files
	telling  map[string]context.CancelFunc // likewise; containers with an unfinished report to the agent
	unasked  map[string]*starting          // likewise; starts that were interrupted, see interrupted.go
}

// starting is a start under way.
type starting struct {
	asked  context.Context // of the request: it ends with containerd
	cancel context.CancelCauseFunc
	killed bool          // the container was killed meanwhile
	over   chan struct{} // closed once the start is over and, if it was interrupted, its container removed
}

func newContainers(a agent, p pod, dir string, next extension.TaskServiceExt) *containers {
	b := bundle{p.sandbox, filepath.Join(filepath.Dir(dir), p.sandbox)}
	return &containers{
		TaskServiceExt: next, agent: a, dir: dir, bundle: b, pod: p,
		starting: make(map[string]*starting),
		loading:  make(map[string]context.CancelFunc), telling: make(map[string]context.CancelFunc),
		unasked: make(map[string]*starting), sessions: use.Sessions{File: a.usedFile(p.sandbox)},
	}
}

// Create creates a container, without the annotations that its pod may not set.
func (c *containers) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if err := c.annotate(r.Bundle, c.onNode()); err != nil {
		return nil, err
	}
	created, err := c.createStreams(ctx, r)
	if ctx.Err() == nil {
		if err == nil && c.bundle.id != "" {
			c.roster.await(r.ID)
			go c.endUnstarted(r.ID)
		}
		return created, err
	}
	err = errors.Join(ctx.Err(), err)
	if c.incomplete() {
		return nil, c.lost(ctx, r.ID, err) // a sandbox that waits for its containers answers nobody
	}
	// A restarted containerd may have asked for the container already, and would then never remove it.
	return nil, fmt.Errorf("create container %s: %w", r.ID, errors.Join(err, c.discard(ctx, r.ID)))
}

// incomplete reports whether the sandbox is restored as a whole and not all of its containers have started. Until they
// have, it waits for them and has no kernel (runsc/boot, restorer.restore); it has all its memory long after that. If
// a container's start fails while it is incomplete, what the container had in memory is lost, even if the sandbox has
// loaded it.
func (c *containers) incomplete() bool { return c.bundle.missing() > 0 }

// try records that a container is about to be started in a sandbox that is restored as a whole. If a start of it was
// tried before and the pod is not restored yet, try returns an error: that start was given up, and the sandbox is
// about to be ended. The sandbox may have loaded its memory already, and then the container would start anew in it.
func (c *containers) try(id string) error {
	if !c.incomplete() {
		return nil
	}
	name := c.roster.name(id)
	if name == "" {
		name = id
	}
	n, err := c.bundle.note(triedPrefix, name)
	if err == nil && n == 0 {
		err = fmt.Errorf("container %s: an earlier start of it was canceled", id)
	}
	return err
}

// checkImage returns an error if a container is about to start in a sandbox that is restored as a whole, and was made
// from another image than its snapshot.
func (c *containers) checkImage(ctx context.Context, id string) error {
	if !c.incomplete() {
		return nil
	}
	o, _ := c.bundle.ordered()
	if err := c.agent.checkContainer(ctx, o.Request, id); err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	return nil
}

// abandon ends a container that was created and not started, and reports whether it is one. GVisor's shim knows no
// end of such a container, and keeps its output open. A restarted containerd would wait for the end or the output
// without a limit, and so would a removal. Only a failing start makes gVisor's shim release the container
// (pkg/shim/v1/proc, createdState). So letGo asks for a start that cannot succeed.
func (c *containers) abandon(id string) bool {
	if c.bundle.id == "" || id == c.bundle.id || c.starts.known(id) {
		return false
	}
	c.letGo(id)
	return true
}

// letGo makes gVisor's shim take a container that was not started for ended, see abandon. It has no effect once
// gVisor's shim has learned that the sandbox is gone, see abandonLimit.
func (c *containers) letGo(id string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.TaskServiceExt.Start(ctx, &task.StartRequest{ID: id})
	log.L.WithError(err).Infof("container %s is no longer started", id)
}

// removeUnstarted removes a container that was not started. If gVisor's shim does not let it go, see letGo, it counts
// as removed: what is left of it ends with the process, and so with its pod.
func removeUnstarted(ctx context.Context, next extension.TaskServiceExt,
	r *task.DeleteRequest,
) (*task.DeleteResponse, error) {
	limited, cancel := context.WithTimeout(ctx, abandonLimit)
	defer cancel()
	type result struct {
		resp *task.DeleteResponse
		err  error
	}
	done := make(chan result, 1)
	go func() {
		resp, err := next.Delete(context.WithoutCancel(ctx), r)
		done <- result{resp, err}
	}()
	select {
	case d := <-done:
		return d.resp, d.err
	case <-limited.Done():
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	log.L.Errorf("container %s, which was not started, is not released within %v", r.ID, abandonLimit)
	return &task.DeleteResponse{ExitStatus: internalError, ExitedAt: protobuf.ToTimestamp(time.Now())}, nil
}

// letGoUnstartable has gVisor's shim let a container go that can never be started, before that shim is asked for its
// state: so it would learn that the sandbox is gone.
func (c *containers) letGoUnstartable(id string) {
	if c.unstartable(id) {
		c.abandon(id)
	}
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
	resp, err := c.start(ctx, r, c.begin)
	if err != nil {
		if errors.Is(err, errKilled) {
			announce(r.ID) // whatever has killed it waits for its exit
		}
		if c.incomplete() {
			err = c.lost(ctx, r.ID, err)
		}
		c.failed(ctx, r.ID, err)
		c.discardUnasked(ctx, r.ID)
		return nil, err
	}
	c.began(ctx, r.ID)
	c.starts.end(r.ID)
	return resp, nil
}

// began records the start of a container in a restored sandbox. With the last one the pod is restored, and began
// tells the agent so before containerd gets its answer.
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

// start runs f, which starts a container. A Kill of the container cancels the context of f.
func (c *containers) start(ctx context.Context, r *task.StartRequest,
	f func(context.Context, *task.StartRequest) (*task.StartResponse, error),
) (*task.StartResponse, error) {
	s := &starting{asked: ctx, over: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.cancel = cancel
	c.roster.asked(r.ID)
	restores := c.incomplete()
	c.mu.Lock()
	c.starting[r.ID] = s
	c.starts.begin(r.ID, restores)
	c.mu.Unlock()
	resp, err := f(ctx, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.killed { // the kill may have come too late for f
		resp, err = nil, errors.Join(errKilled, err)
	}
	if err != nil {
		c.starts.forget(r.ID) // before a kill can find that the start is over
	}
	if err != nil && r.ID != c.bundle.id && c.interrupted(s) { // Start discards it; a sandbox is ended instead
		c.unasked[r.ID] = s
	} else {
		close(s.over)
	}
	delete(c.starting, r.ID)
	return resp, err
}

// interrupt cancels a container's start, and reports whether there was one under way.
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
		c.seeOut(ctx, r.ID)
	}
	interrupted := c.interrupt(r.ID)
	if first && !interrupted && unix.Signal(r.Signal) == unix.SIGKILL && c.unheard(ctx, r.ID) {
		log.L.Warnf("container %s was killed before anyone heard of its start: ending restored sandbox %s", r.ID, c.bundle.id)
		if !c.bundle.gone() { // or it has ended by itself, and containerd removes what is left
			c.pod.undone()
		}
		return &types.Empty{}, c.bundle.kill()
	}
	if unix.Signal(r.Signal) == unix.SIGKILL && c.abandon(r.ID) {
		doomed, err := c.doom(ctx, r.ID)
		if doomed {
			unstarted.Store(r.ID, true)
		}
		announce(r.ID)
		return &types.Empty{}, err
	}
	return c.kill(ctx, r)
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
		if hung || status == tasktypes.Status_PAUSED || c.incomplete() {
			log.L.WithError(err).Warnf("runsc cannot kill container %s, whose sandbox is paused, not restored or hangs: "+
				"ending sandbox %s", r.ID, c.bundle.id)
			if doomed, err := c.doom(ctx, r.ID); doomed {
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

// status returns the state of a container, or UNKNOWN if it cannot find out. It is asked for after something has
// failed, perhaps because ctx has ended, and so takes no notice of that.
func (c *containers) status(ctx context.Context, id string) tasktypes.Status {
	r, err := c.stateFor(context.WithoutCancel(ctx), forStatus, &task.StateRequest{ID: id})
	if err != nil {
		return tasktypes.Status_UNKNOWN
	}
	return r.Status
}

// stateFor returns the state of a container. If the sandbox hangs, the error is of kind errHung.
func (c *containers) stateFor(ctx context.Context, q inquiry, r *task.StateRequest) (*task.StateResponse, error) {
	c.letGoUnstartable(r.ID)
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
	c.giveUp(r.ID, c.loading)
	c.giveUp(r.ID, c.telling)
	c.pending.of(r.ID).Wait()
	if _, err := c.doom(ctx, r.ID); err != nil {
		return nil, err
	}
	remove := c.TaskServiceExt.Delete
	if c.abandon(r.ID) {
		remove = func(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
			return removeUnstarted(ctx, c.TaskServiceExt, r)
		}
	}
	resp, err := remove(ctx, r)
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
		resp, err = remove(ctx, r)
	}
	if err == nil || isNotFound(err) { // an earlier request that was given up has deleted it
		c.starts.forget(r.ID)
		c.forgetTerminal(r.ID)
		c.pending.forget(r.ID)
		c.roster.forget(r.ID)
	}
	return resp, err
}

// doom ends a sandbox that is still waiting for its containers, when one of these is killed or deleted. Otherwise
// that container's output would never end. The restore has failed: if nobody counted that, the kubelet would make the
// sandbox anew for ever.
func (c *containers) doom(ctx context.Context, id string) (doomed bool, err error) {
	if id == c.bundle.id || !c.incomplete() {
		return false, nil
	}
	if o, _ := c.bundle.ordered(); !c.bundle.gone() {
		log.L.Warnf("container %s is to go before sandbox %s is restored: ending the sandbox", id, c.bundle.id)
		early := fmt.Errorf("restore sandbox %s, request %q: container %s was ended before all containers of the pod "+
			"had come", c.bundle.id, o.Request, id)
		c.failure.Do(func() { c.report(ctx, id, c.reportOf(o, early)) })
		c.responds.end()
	}
	return true, c.bundle.kill()
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
	if err := c.askable(ctx, r.ID); err != nil {
		return nil, err
	}
	return passOn(ctx, &c.unanswered, forStats, r.ID, c.TaskServiceExt.Stats, r)
}

// Pids returns the processes of a container, once its sandbox can be asked.
func (c *containers) Pids(ctx context.Context, r *task.PidsRequest) (*task.PidsResponse, error) {
	if err := c.askable(ctx, r.ID); err != nil {
		return nil, err
	}
	return passOn(ctx, &c.unanswered, forPids, r.ID, c.TaskServiceExt.Pids, r)
}

// askable returns an error while the sandbox is incomplete: a question would crash its sentry, because the kernel to
// look into is not there yet (runsc/boot, Loader.pidsCount). It does not wait for the sandbox's memory: a containerd
// before 2.4 that starts removes a container of which it gets an error instead of its processes (core/runtime/v2,
// loadShim).
func (c *containers) askable(ctx context.Context, id string) error {
	if !c.incomplete() {
		return nil
	}
	err := c.awaitRestored(ctx, id)
	if err == nil || errdefs.IsNotFound(err) { // the container is gone: pass the question on to say so
		return nil
	}
	return fmt.Errorf("container %s: its sandbox is being restored: %w", id, errdefs.ErrUnavailable)
}

// awaitRestored returns nil if the sandbox of a container, which is to be restored as a whole, has all its memory
// within restoredLimit.
func (c *containers) awaitRestored(ctx context.Context, id string) error {
	server := runsc.NewGvisorTaskServer(c.TaskServiceExt)
	if server == nil {
		return errdefs.ErrUnavailable
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoredLimit)
	defer cancel()
	_, err := server.Wait(ctx, &pb.WaitRequest{Id: id, WaitType: pb.WaitRequest_RESTORE})
	return errgrpc.ToNative(err)
}

// lost ends a sandbox whose restore failed at the start of a container, and reports this to the agent. It returns the
// error to answer with.
func (c *containers) lost(ctx context.Context, id string, err error) error {
	o, _ := c.bundle.ordered()
	log.L.WithError(err).Errorf("restore of sandbox %s, request %q, failed at container %s", c.bundle.id, o.Request, id)
	err = fmt.Errorf("restore sandbox %s, request %q, container %s: %w", c.bundle.id, o.Request, id, untraced(err))
	c.failure.Do(func() { c.report(ctx, id, c.reportOf(o, err)) })
	c.responds.end()
	if err := c.bundle.kill(); err != nil {
		log.L.WithError(err).Errorf("end sandbox %s", c.bundle.id)
	}
	c.emptyVolumes(o)
	return err
}

// maxRuntimeError bounds how much of an error of runsc is reported, in bytes.
const maxRuntimeError = 600

// unsuccessful is what gVisor's task service puts between the path of runsc and runsc's own error.
const unsuccessful = "did not terminate successfully: "

// untraced shortens an error of gVisor so that people can read it, and keeps its kind. When a save or a load fails,
// gVisor appends a goroutine's stack or a map of all files, and puts the path of runsc before it. The log has all that.
func untraced(err error) error {
	if _, ok := status.FromError(err); ok {
		err = errgrpc.ToNative(err)
	}
	text := err.Error()
	if _, why, ok := strings.Cut(text, unsuccessful); ok {
		text = why
	}
	for _, end := range []string{"\ngoroutine ", ", map: map["} {
		text, _, _ = strings.Cut(text, end)
	}
	if n := len(text); n > maxRuntimeError {
		text = text[:maxRuntimeError/2] + " [...] " + text[n-maxRuntimeError/2:]
	}
	if text == err.Error() {
		return err
	}
	return &shortened{strings.ToValidUTF8(strings.TrimRight(text, ": \n"), ""), err}
}

// shortened is an error with less text.
type shortened struct {
	text string
	error
}

// Error implements error.
func (s *shortened) Error() string { return s.text }

// Unwrap returns the error with its full text.
func (s *shortened) Unwrap() error { return s.error }
