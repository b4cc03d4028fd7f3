package shim

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// If containerd ends while it creates or starts the containers of a pod that is restored, the sandbox is ended. To the
// next containerd a container whose start failed would be one that ran and exited, so that a pod with the restart
// policy Never would have failed. It never ran, and has to stay one that was never started: then the agent sees to it
// that the kubelet restores the pod in another sandbox (agent/restore/interrupted.go).
//
//   - If a start was interrupted, the shim removes its container before it answers the next containerd's first question
//     (Connect). That containerd then finds a shim without a container, and ends it (core/runtime/v2/shim_load.go).
//   - A container that was created and not started is killed by the next containerd, which waits for its exit and
//     removes it (internal/cri/server/restart.go, loadContainer). It takes it for exited only if an event says so.
//     So there is none.

// settleLimit bounds how long a containerd that has just started waits for the end of an interrupted start. It waits
// five seconds for the answer (io.containerd.timeout.shim.load), and gives up the shim otherwise.
const settleLimit = 4 * time.Second

// interrupted reports whether containerd has ended while it started a container of a pod that is not restored yet. The
// caller holds s.mu.
func (s *starter) interrupted(x *starting) bool {
	return errors.Is(x.asked.Err(), context.Canceled) && s.progress.incomplete()
}

// removeInterrupted removes a container whose start was interrupted. Of another container it removes nothing.
func (s *starter) removeInterrupted(ctx context.Context, id string) {
	s.mu.Lock()
	x := s.cut[id]
	s.mu.Unlock()
	if x == nil {
		return
	}
	if err := s.remove(ctx, id); err != nil {
		slog.Warn("a container whose start was interrupted is not removed", "container", id, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cut, id)
	close(x.over)
}

// settle waits for the end of a container's interrupted start, for at most settleLimit.
func (s *starter) settle(ctx context.Context, id string) {
	s.mu.Lock()
	x := s.cut[id]
	if begun := s.underway[id]; begun != nil && s.interrupted(begun) {
		x = begun
	}
	s.mu.Unlock()
	if x == nil {
		return
	}
	select {
	case <-x.over:
	case <-time.After(settleLimit):
		slog.Warn("a container whose start was interrupted is not removed in time", "container", id, "limit", settleLimit)
	case <-ctx.Done():
	}
}
