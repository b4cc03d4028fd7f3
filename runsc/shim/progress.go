package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"
	"gvisor.dev/gvisor/pkg/shim/v1/extension"
	"gvisor.dev/gvisor/pkg/shim/v1/runsc"
	pb "gvisor.dev/gvisor/pkg/shim/v1/taskserver/task_server_go_proto"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc/volume"
)

// progress is how far the restore of a pod's sandbox is. It tells the agent, and ends a sandbox whose restore has
// failed. For a sandbox that has started anew it does nothing. Its methods may be called concurrently.
//
// GVisor restores a sandbox once its last container starts. If that start fails, the containers that were started
// before it can be neither waited for nor killed, because they never came to life: so the sandbox is ended.
type progress struct {
	next     extension.TaskServiceExt // gVisor's
	agent    agent
	pod      pod
	bundle   bundle // of the pod's sandbox
	roster   *roster
	pending  pending // for instance reports to the agent
	responds responder

	// failure reports that the sandbox as a whole is not restored. The agent counts the reports, and containerd kills
	// and then deletes a container whose start has failed.
	failure sync.Once

	mu      sync.Mutex
	loading map[string]context.CancelFunc // by container id; containers that wait for their files
	telling map[string]context.CancelFunc // likewise; containers with an unfinished report to the agent
}

func newProgress(a agent, p pod, b bundle, k *roster, next extension.TaskServiceExt) *progress {
	return &progress{
		next: next, agent: a, pod: p, bundle: b, roster: k,
		loading: make(map[string]context.CancelFunc), telling: make(map[string]context.CancelFunc),
	}
}

// incomplete reports whether the sandbox is restored as a whole and not all of its containers have started. Until they
// have, it waits for them and has no kernel (runsc/boot, restorer.restore); it has all its memory long after that. If
// a container's start fails while it is incomplete, what the container had in memory is lost, even if the sandbox has
// loaded it.
func (p *progress) incomplete() bool { return p.bundle.missing() > 0 }

// began records the start of a container in a restored sandbox. With the last one the pod is restored, and began
// tells the agent so before containerd gets its answer.
func (p *progress) began(ctx context.Context, id string) {
	o, ok := p.bundle.ordered()
	if !ok {
		return
	}
	n, err := p.bundle.note(startedPrefix, p.part(o, id))
	if err != nil {
		slog.Warn("the agent is not told that the pod is restored", "sandbox", p.bundle.id, "error", err)
	} else if n == o.Containers {
		p.reportComplete(ctx, id, p.reportOf(o, nil))
	}
	if o.Rootfs {
		p.awaitFiles(ctx, o, id)
	}
}

// part returns the name under which a container's progress is recorded. With root file systems alone, a container
// that is started again has a new id but must count only once, so its name counts.
func (p *progress) part(o order, id string) string {
	if name := p.roster.name(id); o.Rootfs && name != "" {
		return name
	}
	return id
}

// startFailed reports to the agent that a container did not start in a sandbox whose root file systems are restored,
// unless the pod is restored already. The sandbox stays: the start may be tried again.
func (p *progress) startFailed(ctx context.Context, id string, err error) {
	o, ok := p.bundle.ordered()
	if !ok || !o.Rootfs || errors.Is(err, errKilled) {
		return
	}
	if n, unknown := p.bundle.noted(startedPrefix); unknown == nil && n < o.Containers {
		p.report(ctx, id, p.reportOf(o, fmt.Errorf("start container %s: %w", id, trimStack(err))))
	}
}

// failRestore ends a sandbox whose restore failed at the start of a container, and reports this to the agent. It
// returns the error to answer with.
func (p *progress) failRestore(ctx context.Context, id string, err error) error {
	o, _ := p.bundle.ordered()
	slog.Error("the restore of the sandbox has failed", "sandbox", p.bundle.id, "container", id, "request", o.Request,
		"error", err)
	err = fmt.Errorf("restore sandbox %s, request %q, container %s: %w", p.bundle.id, o.Request, id, trimStack(err))
	p.failure.Do(func() { p.report(ctx, id, p.reportOf(o, err)) })
	p.responds.end()
	if err := p.bundle.kill(); err != nil {
		slog.Error("end the sandbox", "sandbox", p.bundle.id, "error", err)
	}
	if err := volume.Empty(p.pod.uid, o.Volumes); err != nil {
		slog.Error("empty the volumes of a sandbox that was not restored", "sandbox", p.bundle.id, "error", err)
	}
	return err
}

// killIncomplete ends a sandbox that is still waiting for its containers, when one of these is killed or deleted, and
// reports whether it is one. Otherwise that container's output would never end. The restore has failed: if nobody
// counted that, the kubelet would make the sandbox anew for ever.
func (p *progress) killIncomplete(ctx context.Context, id string) (killed bool, err error) {
	if id == p.bundle.id || !p.incomplete() {
		return false, nil
	}
	if o, _ := p.bundle.ordered(); !p.bundle.gone() {
		slog.Warn("a container is to go before its sandbox is restored: ending the sandbox", "sandbox", p.bundle.id,
			"container", id)
		early := fmt.Errorf("restore sandbox %s, request %q: container %s was ended before all containers of the pod "+
			"had come", p.bundle.id, o.Request, id)
		p.failure.Do(func() { p.report(ctx, id, p.reportOf(o, early)) })
		p.responds.end()
	}
	return true, p.bundle.kill()
}

// restoredLimit bounds the wait for gVisor's answer whether a sandbox is restored. If it is, gVisor answers as soon as
// a runsc has started.
const restoredLimit = 300 * time.Millisecond

// askable returns an error while the sandbox is incomplete: a question would crash its sentry, because the kernel to
// look into is not there yet (runsc/boot, Loader.pidsCount). It does not wait for the sandbox's memory: a containerd
// before 2.4 that starts removes a container of which it gets an error instead of its processes (core/runtime/v2,
// loadShim).
func (p *progress) askable(ctx context.Context, id string) error {
	if !p.incomplete() {
		return nil
	}
	err := p.awaitRestored(ctx, id)
	if err == nil || errdefs.IsNotFound(err) { // the container is gone: pass the question on to say so
		return nil
	}
	return fmt.Errorf("container %s: its sandbox is being restored: %w", id, errdefs.ErrUnavailable)
}

// awaitRestored returns nil if the sandbox of a container, which is to be restored as a whole, has all its memory
// within restoredLimit.
func (p *progress) awaitRestored(ctx context.Context, id string) error {
	server := runsc.NewGvisorTaskServer(p.next)
	if server == nil {
		return errdefs.ErrUnavailable
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoredLimit)
	defer cancel()
	_, err := server.Wait(ctx, &pb.WaitRequest{Id: id, WaitType: pb.WaitRequest_RESTORE})
	return errgrpc.ToNative(err)
}

// awaitFiles waits in the background until a running container's root file system is loaded, or the container is
// removed. When the last container of the pod has its files, it tells the agent.
func (p *progress) awaitFiles(ctx context.Context, o order, id string) {
	server := runsc.NewGvisorTaskServer(p.next)
	if server == nil {
		return
	}
	ctx = p.track(ctx, id, p.loading)
	p.pending.of(id).Go(func() {
		defer p.giveUp(id, p.loading)
		// If nothing was saved of the container, that is an error here. If reads failed, the agent knows already.
		if _, err := server.Wait(ctx, &pb.WaitRequest{Id: id, WaitType: pb.WaitRequest_FSRESTORE}); err != nil {
			slog.Info("nothing is restored of the container any longer", "container", id, "error", err)
		}
		n, err := p.bundle.note(loadedPrefix, p.part(o, id))
		if err == nil && n == o.Containers {
			err = p.reportLoaded(ctx, o)
		}
		if err != nil {
			slog.Warn("the agent was not told that the sandbox has all its files", "sandbox", p.bundle.id, "error", err)
		}
	})
}

// reportOf returns a report for the agent: the pod is restored, or err says why it is not.
func (p *progress) reportOf(o order, err error) *localv1.ReportRestoreRequest {
	req := &localv1.ReportRestoreRequest{
		Request: o.Request, SandboxId: p.bundle.id, Snapshot: o.Snapshot, Annotations: p.pod.annotations,
		Complete: err == nil,
	}
	if err != nil {
		req.Error = err.Error()
	}
	return req
}

// report reports the progress of a restore to the agent in the background. The removal of the container waits for
// this no longer than briefWait.
func (p *progress) report(ctx context.Context, id string, req *localv1.ReportRestoreRequest) {
	ctx = p.track(ctx, id, p.telling)
	p.pending.of(id).Go(func() {
		defer p.giveUp(id, p.telling)
		sending, done := withGrace(ctx)
		defer done()
		if err := p.agent.report(sending, req); err != nil {
			slog.Warn("the agent was not told how the restore went on", "sandbox", p.bundle.id, "error", err)
		}
	})
}

// reportComplete notes that the pod is restored, and tells the agent. If the agent or the API server does not accept
// this now, it repeats the report in the background until the container is removed.
func (p *progress) reportComplete(ctx context.Context, id string, req *localv1.ReportRestoreRequest) {
	p.pod.completed() // before it is known: the agent may be away
	err := p.agent.report(ctx, req)
	if err == nil {
		return
	}
	slog.Warn("the agent was not told yet that the pod is restored", "sandbox", p.bundle.id, "error", err)
	ctx = p.track(ctx, id, p.telling)
	p.pending.of(id).Go(func() {
		defer p.giveUp(id, p.telling)
		if err := p.reportUntil(ctx, req); err != nil {
			slog.Warn("the agent was not told that the pod is restored", "sandbox", p.bundle.id, "error", err)
		}
	})
}

// reportLoaded tells the agent that all containers have all their files. While the agent is away, it retries until
// ctx is done.
func (p *progress) reportLoaded(ctx context.Context, o order) error {
	req := p.reportOf(o, nil)
	req.Complete, req.Loaded = false, true
	return p.reportUntil(ctx, req)
}

// reportUntil reports the progress of a restore to the agent. If the agent is away, or cannot pass the report on now,
// it retries until ctx is done.
func (p *progress) reportUntil(ctx context.Context, req *localv1.ReportRestoreRequest) error {
	sending, done := withGrace(ctx)
	defer done()
	for {
		err := p.agent.report(sending, req)
		// An agent that is away does not answer within the call's deadline. One that cannot pass the report on now says
		// CodeAgain. Any other result is final: the agent has accepted the report, or never will.
		if (!errors.Is(err, context.DeadlineExceeded) && status.Code(err) != localv1.CodeAgain) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(reportPause):
		case <-ctx.Done():
		}
	}
}

// withGrace returns a context that lasts briefWait longer than ctx. So a report under way when a container is removed
// still arrives, and the removal does not wait long for an agent that is away.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(briefWait, cancel) })
	return out, func() {
		stop()
		cancel()
	}
}

// track returns a context for work for a container. It does not end with ctx, but with giveUp.
func (p *progress) track(ctx context.Context, id string, underway map[string]context.CancelFunc) context.Context {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.mu.Lock()
	defer p.mu.Unlock()
	underway[id] = cancel
	return ctx
}

// giveUp cancels work for a container: the wait for its files, or a report.
func (p *progress) giveUp(id string, underway map[string]context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel := underway[id]; cancel != nil {
		cancel()
		delete(underway, id)
	}
}

// settle ends the work for a container that is to be removed, and waits for its end.
func (p *progress) settle(id string) {
	p.giveUp(id, p.loading)
	p.giveUp(id, p.telling)
	p.pending.of(id).Wait()
}
