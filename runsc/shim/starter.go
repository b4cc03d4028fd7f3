package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/protobuf"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"

	"diapause.dev/runsc/volume"
)

// errKilled is the cause of a start that was given up because a kill of its container has arrived.
var errKilled = errors.New("the container was killed while it started")

// starter starts the containers of a pod, and lets those go that are not started. Its methods may be called
// concurrently.
//
// GVisor's shim holds a lock while a container starts. For the last container of a restored pod, that is until the
// image is loaded. So a kill in that time cancels the start instead of waiting for it.
type starter struct {
	next     extension.TaskServiceExt // gVisor's
	process  *process
	bundle   bundle // of the pod's sandbox
	roster   *roster
	progress *progress
	recent   recentStarts
	remove   func(ctx context.Context, id string) error // removes a created container

	mu       sync.Mutex
	underway map[string]*starting // by container id
	cut      map[string]*starting // likewise; starts that were interrupted, see interruptedstart.go
}

// starting is a start under way.
type starting struct {
	asked  context.Context // of the request: it ends with containerd
	cancel context.CancelCauseFunc
	killed bool          // the container was killed meanwhile
	over   chan struct{} // closed once the start is over and, if it was interrupted, its container removed
}

// start runs f, which starts a container. A Kill of the container cancels the context of f.
func (s *starter) start(ctx context.Context, r *task.StartRequest,
	f func(context.Context, *task.StartRequest) (*task.StartResponse, error),
) (*task.StartResponse, error) {
	x := &starting{asked: ctx, over: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x.cancel = cancel
	s.roster.asked(r.ID)
	restores := s.progress.incomplete()
	s.mu.Lock()
	s.underway[r.ID] = x
	s.recent.begin(r.ID, restores)
	s.mu.Unlock()
	resp, err := f(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.killed { // the kill may have come too late for f
		resp, err = nil, errors.Join(errKilled, err)
	}
	if err != nil {
		s.recent.forget(r.ID) // before a kill can find that the start is over
	}
	if err != nil && r.ID != s.bundle.id && s.interrupted(x) { // Start removes it; a sandbox is ended instead
		s.cut[r.ID] = x
	} else {
		close(x.over)
	}
	delete(s.underway, r.ID)
	return resp, err
}

// startMember starts a container in the pod's sandbox, after it has recorded the start, had the container's image
// checked, and noted that the volumes that were put in place are the pod's own from now on.
func (s *starter) startMember(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	o, _ := s.bundle.ordered()
	err := s.try(r.ID)
	if err == nil {
		err = s.checkImage(ctx, o, r.ID)
	}
	if err == nil {
		err = volume.Settle(s.progress.pod.uid, o.Volumes)
	}
	if err != nil {
		s.failCreated(r.ID)
		return nil, err
	}
	last := s.bundle.missing() == 1 // with it the sandbox loads, and has a network of its own
	resp, err := s.next.Start(ctx, r)
	if err == nil && last {
		err = s.progress.responds.drain()
	}
	return resp, err
}

// try records that a container is about to be started in a sandbox that is restored as a whole. If a start of it was
// tried before and the pod is not restored yet, try returns an error: that start was given up, and the sandbox is
// about to be ended. The sandbox may have loaded its memory already, and then the container would start anew in it.
func (s *starter) try(id string) error {
	if !s.progress.incomplete() {
		return nil
	}
	name := s.roster.name(id)
	if name == "" {
		name = id
	}
	n, err := s.bundle.note(triedPrefix, name)
	if err == nil && n == 0 {
		err = fmt.Errorf("container %s: an earlier start of it was canceled", id)
	}
	return err
}

// checkImage returns an error if a container is about to start in a sandbox that is restored as a whole, and was made
// from another image than its snapshot.
func (s *starter) checkImage(ctx context.Context, o order, id string) error {
	if !s.progress.incomplete() {
		return nil
	}
	if err := s.progress.agent.checkContainer(ctx, o.Request, id); err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	return nil
}

// cancel cancels a container's start, because it is killed, and reports whether there was one under way.
func (s *starter) cancel(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.underway[id]
	if x == nil {
		return false
	}
	x.killed = true
	x.cancel(errKilled)
	return true
}

// releaseCreated ends a container that was created and not started, and reports whether it is one. GVisor's shim knows
// no end of such a container, and keeps its output open. A restarted containerd would wait for the end or the output
// without a limit, and so would a removal. Only a failing start makes gVisor's shim release the container
// (pkg/shim/v1/proc, createdState). So failCreated asks for a start that cannot succeed.
func (s *starter) releaseCreated(id string) bool {
	if s.bundle.id == "" || id == s.bundle.id || s.recent.known(id) {
		return false
	}
	s.failCreated(id)
	return true
}

// failCreated makes gVisor's shim take a container that was not started for ended, see releaseCreated. It has no effect
// once gVisor's shim has learned that the sandbox is gone, see releaseLimit.
func (s *starter) failCreated(id string) {
	ctx, cancel := context.WithCancel(context.Background()) // it is over at once
	cancel()
	_, err := s.next.Start(ctx, &task.StartRequest{ID: id})
	slog.Info("the container is no longer started", "container", id, "error", err)
}

// releaseUnstartable has gVisor's shim let a container go that can never be started, before that shim is asked for its
// state: so it would learn that the sandbox is gone.
func (s *starter) releaseUnstartable(id string) {
	if s.unstartable(id) {
		s.releaseCreated(id)
	}
}

// unstartable reports whether nothing has asked to start a container, and nothing can start it any more.
func (s *starter) unstartable(id string) bool { return s.roster.awaited(id) && s.bundle.gone() }

// exitWithoutStart ends a container if nothing has asked to start it, and the sandbox is gone. If the request that
// created the container was given up in time, containerd takes it for running and does not remove it. It hears of no
// exit, for nobody waits for one, but it cleans up when the container's connection ends.
//
// If a start was tried, the container stays until containerd knows that it has ended. Otherwise a restarted containerd
// would take the container for created, and in a pod that never restarts its containers the kubelet would wait for it
// for ever.
func (s *starter) exitWithoutStart(id string) {
	for was := false; s.roster.awaited(id); {
		time.Sleep(watchTime)
		is := s.unstartable(id)
		if was && is { // after only one check, containerd may be removing it
			slog.Warn("the container was never started, and its sandbox is gone: it ends", "sandbox", s.bundle.id,
				"container", id)
			s.releaseCreated(id)
			s.process.connected.Drop(id)
			return
		}
		was = is
	}
}

// releaseLimit bounds the removal of a container that was not started.
const releaseLimit = 5 * time.Second

// removeCreated removes a container that was not started. If gVisor's shim does not release it, see failCreated, it
// counts as removed: what is left of it ends with the process, and so with its pod.
func (s *starter) removeCreated(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	limited, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	type result struct {
		resp *task.DeleteResponse
		err  error
	}
	done := make(chan result, 1)
	go func() {
		resp, err := s.next.Delete(context.WithoutCancel(ctx), r)
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
	slog.Error("a container that was not started is not released in time", "container", r.ID, "limit", releaseLimit)
	return &task.DeleteResponse{ExitStatus: internalError, ExitedAt: protobuf.ToTimestamp(time.Now())}, nil
}
