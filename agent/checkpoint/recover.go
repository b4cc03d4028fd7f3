package checkpoint

import (
	"context"
	"errors"
	"log/slog"

	"github.com/containerd/errdefs"

	"diapause.dev/agent/journal"
	"diapause.dev/cri"
	"diapause.dev/runsc/lease"
)

// Recover finishes what an earlier agent left: it resumes or ends the sandboxes that were paused, and ends interrupted
// requests. It runs before the local service answers. If settle fails for a request, SettleLoop tries again.
func (cs *Checkpoints) Recover(ctx context.Context) { cs.settler.recover(ctx) }

// recover is Checkpoints.Recover.
func (s *settler) recover(ctx context.Context) {
	for _, r := range s.journal.Where(func(r *journal.Record) bool { return !r.Ended() }) {
		if !s.settle(ctx, r) {
			s.unsettled.Add(r)
		}
	}
	s.resumeLost(ctx)
}

// resumeLost resumes sandboxes that were paused for requests whose records cannot be read: no agent will finish these
// requests. What such a request has saved stays in the spool.
func (s *settler) resumeLost(ctx context.Context) {
	if len(s.journal.Lost()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()
	pods, err := s.runtime.Pods(ctx)
	if err != nil {
		s.log.Error("pods paused for requests whose records are unreadable go on when their lease runs out", "error", err)
		return
	}
	for _, pod := range pods {
		if !pod.Ready || pod.CheckRuntime() != nil {
			continue
		}
		for _, id := range s.journal.Lost() {
			s.endLost(ctx, pod, id)
		}
	}
}

// endLost resumes a pod if it was paused for this request. A shim without leases does not know for which request it was
// paused. There endLost resumes the pod if it is paused at all.
func (s *settler) endLost(ctx context.Context, pod *cri.Pod, id string) {
	err := s.runtime.EndPause(ctx, pod.ID, id)
	if errors.Is(err, lease.ErrRanOut) {
		return
	}
	if errdefs.IsInvalidArgument(err) {
		err = s.control.resumeIfPaused(ctx, pod.ID)
	}
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelError
	}
	s.log.Log(ctx, level, "resume a pod, in case it is paused for a request whose record is unreadable",
		"pod", pod.String(), "request", id, "error", err)
}
