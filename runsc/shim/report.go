package shim

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/log"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	localv1 "diapause.dev/api/local/v1"
)

// reportOf returns a report for the agent: the pod is restored, or err says why it is not.
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

// report reports the progress of a restore to the agent in the background. The removal of the container waits for
// this no longer than briefWait.
func (c *containers) report(ctx context.Context, id string, req *localv1.ReportRestoreRequest) {
	ctx = c.while(ctx, id, c.telling)
	c.pending.of(id).Go(func() {
		defer c.giveUp(id, c.telling)
		sending, done := lingering(ctx)
		defer done()
		if err := c.agent.report(sending, req); err != nil {
			log.L.WithError(err).Warnf("the agent was not told how the restore of sandbox %s went on", c.bundle.id)
		}
	})
}

// reportComplete notes that the pod is restored, and tells the agent. If the agent or the API server does not accept
// this now, it repeats the report in the background until the container is removed.
func (c *containers) reportComplete(ctx context.Context, id string, req *localv1.ReportRestoreRequest) {
	c.pod.completed() // before it is known: the agent may be away
	err := c.agent.report(ctx, req)
	if err == nil {
		return
	}
	log.L.WithError(err).Warnf("the agent was not told yet that the pod of sandbox %s is restored", c.bundle.id)
	ctx = c.while(ctx, id, c.telling)
	c.pending.of(id).Go(func() {
		defer c.giveUp(id, c.telling)
		if err := c.reportUntil(ctx, req); err != nil {
			log.L.WithError(err).Warnf("the agent was not told that the pod of sandbox %s is restored", c.bundle.id)
		}
	})
}

// reportUntil reports the progress of a restore to the agent. If the agent is away, or cannot pass the report on now,
// it retries until ctx is done.
func (c *containers) reportUntil(ctx context.Context, req *localv1.ReportRestoreRequest) error {
	sending, done := lingering(ctx)
	defer done()
	for {
		err := c.agent.report(sending, req)
		// An agent that is away does not answer within the call's deadline. One that cannot pass the report on now says
		// Aborted. Any other result is final: the agent has accepted the report, or never will.
		if (!errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.Aborted) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(reportPause):
		case <-ctx.Done():
		}
	}
}

// lingering returns a context that lasts briefWait longer than ctx. So a report under way when a container is removed
// still arrives, and the removal does not wait long for an agent that is away.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(briefWait, cancel) })
	return out, func() {
		stop()
		cancel()
	}
}

// while returns a context for work for a container. It does not end with ctx, but with giveUp.
func (c *containers) while(ctx context.Context, id string, underway map[string]context.CancelFunc) context.Context {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.mu.Lock()
	defer c.mu.Unlock()
	underway[id] = cancel
	return ctx
}

// giveUp cancels work for a container: the wait for its files, or a report.
func (c *containers) giveUp(id string, underway map[string]context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := underway[id]; cancel != nil {
		cancel()
		delete(underway, id)
	}
}
