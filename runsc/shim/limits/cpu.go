package limits

import (
	"context"
	"log/slog"
	"time"

	"diapause.dev/runsc/cgroup"
	"diapause.dev/runsc/sidecar"
)

// A pod with a limit of processor time would be paused, and come back, many times as slowly as another one: the kernel
// has it wait for the next period again and again, and the sidecar with it. So the limit is taken away for as long as
// the pod is saved or restored. Its weight against other pods stays. The record of it, and who puts it back, is in
// limits.go.

// unlimitedTime bounds how long a restore may go on without the pod's limit of processor time. A restore whose store is
// slow waits more than it computes.
const unlimitedTime = 30 * time.Second

// LiftCPUToSave takes the limit of processor time from the sandbox, unless the sidecar's options say otherwise. The
// function that it returns puts the limit back.
func (h *Headroom) LiftCPUToSave(o sidecar.Options) (putBack func()) {
	h.liftCPULimit(o)
	return func() { h.cpu.putBack(h.cpu.grown) }
}

// LiftCPUToRestore takes the limit of processor time from the sandbox until a restore is done, or unlimitedTime is
// over, unless the sidecar's options say otherwise.
func (h *Headroom) LiftCPUToRestore(o sidecar.Options, done func() bool) {
	h.liftCPULimit(o)
	h.cpu.putBackWhen(func(context.Context) bool { return done() })
}

// liftCPULimit takes the limit of processor time from the sandbox. If it cannot, the limit stays, and all takes longer.
func (h *Headroom) liftCPULimit(o sidecar.Options) {
	if o.KeepCPULimit {
		return
	}
	err := h.cpu.raise(func() ([]cgroup.Change, error) { return cgroup.UnlimitCPU(h.Cgroup, h.Owns) })
	if err != nil {
		slog.Warn("the sandbox keeps its CPU limit", "sandbox", h.Sandbox, "error", err)
	}
}
