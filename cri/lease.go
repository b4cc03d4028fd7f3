package cri

import (
	"context"
	"fmt"
	"time"

	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/refusal"
	"github.com/containerd/errdefs"
)

// Leases pauses sandboxes for as long as somebody renews the lease on the pause.
type Leases struct {
	tasks  *Tasks
	killer *Killer
}

// PauseFor pauses the pod's sandbox for as long as holder renews the lease. The shim keeps the lease, so that the
// sandbox resumes by itself after holder is gone. Leased reports whether the shim knows leases. With an older shim
// the sandbox stays paused until Resume.
func (l *Leases) PauseFor(ctx context.Context, podID, holder string, d time.Duration) (leased bool, err error) {
	err = l.askLease(ctx, podID, lease.Request{Verb: lease.Pause, Holder: holder, For: d})
	if errdefs.IsInvalidArgument(err) {
		return false, l.tasks.Pause(ctx, podID)
	}
	return true, err
}

// RenewPause extends a pause by PauseFor. If the sandbox runs, the error is of kind lease.ErrRanOut.
func (l *Leases) RenewPause(ctx context.Context, podID, holder string, d time.Duration) error {
	return l.askLease(ctx, podID, lease.Request{Verb: lease.Renew, Holder: holder, For: d})
}

// EndPause resumes a sandbox that holder has paused by PauseFor. If holder does not hold the lease, the error is of
// kind lease.ErrRanOut. If the shim knows no leases, it is of kind ErrInvalidArgument.
func (l *Leases) EndPause(ctx context.Context, podID, holder string) error {
	return l.askLease(ctx, podID, lease.Request{Verb: lease.Resume, Holder: holder})
}

// KillPaused kills a sandbox that holder has paused by PauseFor, if it has not run since. If it has, the error is of
// kind lease.ErrRanOut, and the sandbox runs on. If the shim knows no leases, KillPaused kills the sandbox if it is
// paused now.
func (l *Leases) KillPaused(ctx context.Context, pod *Pod, holder string) error {
	err := l.askLease(ctx, pod.ID, lease.Request{Verb: lease.Kill, Holder: holder})
	if errdefs.IsInvalidArgument(err) {
		return l.killIfPaused(ctx, pod)
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("kill pod %s: %w", pod, err)
	}
	if err := l.killer.waitEnded(ctx, pod.ID); err != nil {
		return fmt.Errorf("kill pod %s: %w", pod, err)
	}
	return nil
}

func (l *Leases) killIfPaused(ctx context.Context, pod *Pod) error {
	paused, err := l.tasks.Paused(ctx, pod.ID)
	if err == nil && !paused {
		err = lease.ErrRanOut
	}
	if err != nil {
		return fmt.Errorf("kill pod %s: %w", pod, err)
	}
	return l.killer.Kill(ctx, pod)
}

// askLease passes a request to the shim of a pod's sandbox.
func (l *Leases) askLease(ctx context.Context, podID string, r lease.Request) error {
	err := l.tasks.annotate(ctx, podID, lease.Annotation, r.String())
	if err = refusal.Lease.Read(err); err != nil {
		return fmt.Errorf("%s sandbox %s: %w", r.Verb, podID, err)
	}
	return nil
}
