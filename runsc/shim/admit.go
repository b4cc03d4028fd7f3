package shim

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc/cgroup"
	"diapause.dev/runsc/volume"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Before a pod wakes, the shim of its sandbox asks the agent whether the node has the memory for it. Until the agent
// says so the pod sleeps on: its packets are held, it can be deleted, and another agent can take over.

// wakeAnswerWait is how long the shim waits for the agent's answer about a wake, until it asks again. An agent that
// lets the wake wait says so sooner. It forgets a wake that nobody asks for (silence in agent/admission/queue.go).
const wakeAnswerWait = 5 * time.Second

// agentPoll is how often a pod that is to be woken looks for the agent.
const agentPoll = 100 * time.Millisecond

// admitted asks the agent once whether the pod may be woken now, by the restore at image. It was to be woken so long
// ago. If the pod may not, or the agent does not answer, admitted returns false after a while, or once the sleep is
// over.
func (z *waking) admitted(ctx context.Context, image string, over <-chan struct{}, waited time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wakeAnswerWait)
	defer cancel()
	go func() {
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	resp, err := z.c.agent.askWake(ctx, &localv1.AskWakeRequest{
		Request: filepath.Base(image), SandboxId: z.c.bundle.id, Room: z.s.pod.sharedRoom(), Waited: durationpb.New(waited),
	})
	switch {
	case err == nil && resp.GetDecision() == localv1.AskWakeResponse_WAIT:
		z.hold("for " + resp.GetReason())
		return false
	case err != nil:
		z.holdFor(over, agentPoll, "for the agent: "+err.Error())
		return false
	}
	z.damaged.Store(resp.GetUnreadable())
	err = volume.AddPayloads(ctx, z.s.pod.uid, resp.GetPayloads(), false, z.c.agent.receive(filepath.Base(image)))
	if err != nil {
		z.holdFor(over, agentPoll, "for its volumes: "+err.Error())
		return false
	}
	z.shared.hold("")
	return true
}

// holdFor is hold for what is to be tried again after a while, unless the sleep is over before.
func (z *waking) holdFor(over <-chan struct{}, pause time.Duration, why string) {
	select {
	case <-over:
	case <-time.After(pause):
		z.hold(why)
	}
}

// sharedRoom returns how much memory is free in the cgroups that the pod shares with others, in bytes. What cannot be
// found out sets no limit.
func (p pod) sharedRoom() int64 {
	free, err := cgroup.FreeAbove(p.cgroup, p.owns)
	if err != nil {
		return cgroup.Unlimited
	}
	return free
}

// hold notes what a wake waits for before it begins.
func (z *waking) hold(why string) {
	if z.shared.hold(why) == "" {
		slog.Info("the sandbox is to be woken, and waits", "sandbox", z.c.bundle.id, "waits", why)
	}
}

// hold notes what the wake waits for before it begins; empty: for nothing. It returns what was noted before.
func (w *sharedWake) hold(why string) (before string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, w.held = w.held, why
	return before
}

// askWake asks whether a pod may be woken.
func (a agent) askWake(ctx context.Context, req *localv1.AskWakeRequest) (resp *localv1.AskWakeResponse, err error) {
	err = a.call(ctx, func(c localv1.ShimClient) (err error) {
		resp, err = c.AskWake(ctx, req)
		return err
	})
	return resp, err
}

// retryWake has another wake prepared. An error of localv1.CodeNever says that there can be none.
func (a agent) retryWake(ctx context.Context, req *localv1.RetryWakeRequest,
) (resp *localv1.RetryWakeResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, wakeAnswerWait)
	defer cancel()
	err = a.call(ctx, func(c localv1.ShimClient) (err error) {
		resp, err = c.RetryWake(ctx, req)
		return err
	})
	if image := resp.GetImagePath(); err == nil && !filepath.IsAbs(image) {
		err = fmt.Errorf("the agent's image path %.80q is not absolute", image)
	}
	return resp, err
}
