package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/cri"
	"diapause.dev/runsc/durable"
	"diapause.dev/runsc/lease"
)

// resumeTime bounds the time to undo a pause, and the time to kill a sandbox whose snapshot is spooled. The end of the
// request or of the agent interrupts neither.
const resumeTime = time.Minute

// control has the sandboxes of this node run on or end, after a pause or a sleep. Its methods may be called
// concurrently.
type control struct {
	runtime    Runtime
	sleeps     Sleeps // nil: no pod ever sleeps
	stoppedDir string // markers of sandboxes that were stopped, for the shim
	log        *slog.Logger
}

// asleep reports whether the pod of a sandbox sleeps.
func (t *control) asleep(sandbox string) bool {
	return t.sleeps != nil && t.sleeps.Asleep(sandbox)
}

// sleepsOn returns the snapshot on which the pod of a sandbox sleeps.
func (t *control) sleepsOn(sandbox string) (id snapshots.ID, ok bool) {
	if t.sleeps == nil {
		return id, false
	}
	return t.sleeps.SleepsOn(sandbox)
}

// unpause resumes a sandbox that was paused for a request, and ends the pause's lease. If the request does not hold the
// lease, or the shim knows none, unpause resumes the sandbox if it is paused.
func (t *control) unpause(ctx context.Context, id, request string) error {
	err := t.runtime.EndPause(ctx, id, request)
	switch {
	case err == nil:
		return nil
	case statusTells(err):
		return t.resumeIfPaused(ctx, id)
	}
	return t.unlessEnded(ctx, id, err)
}

// statusTells reports whether a sandbox's status tells whether it is paused, after an error about the lease of a pause:
// the lease is not held, or the shim knows none. While a lease is held, containerd says that the sandbox runs.
func statusTells(err error) bool {
	return errors.Is(err, lease.ErrRanOut) || errdefs.IsInvalidArgument(err)
}

// unlessEnded returns an error of a request about a sandbox, or nil if that has ended: then nothing is left to do.
func (t *control) unlessEnded(ctx context.Context, id string, err error) error {
	if ended, lookErr := t.hasEnded(ctx, id); lookErr == nil && ended {
		return nil
	}
	return err
}

// pausedFor reports whether a sandbox is still paused for a request. If so, it extends the lease of the pause.
func (t *control) pausedFor(ctx context.Context, r *journal.Record) (paused bool, err error) {
	err = t.runtime.RenewPause(ctx, r.SandboxID, r.ID, pauseLease)
	switch {
	case err == nil:
		return true, nil
	case !statusTells(err):
		return false, t.unlessEnded(ctx, r.SandboxID, err)
	}
	paused, err = t.runtime.Paused(ctx, r.SandboxID)
	if errors.Is(err, cri.ErrNotFound) {
		return false, nil
	}
	return paused, err
}

func (t *control) resumeIfPaused(ctx context.Context, id string) error {
	paused, err := t.runtime.Paused(ctx, id)
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	if err != nil || !paused {
		return err
	}
	return t.runtime.Resume(ctx, id)
}

// killer ends a sandbox.
type killer func(context.Context, *cri.Pod) error

// killPaused returns the killer for a sandbox that was paused for a request and must not have run since.
func (t *control) killPaused(r *journal.Record) killer {
	return func(ctx context.Context, pod *cri.Pod) error { return t.runtime.KillPaused(ctx, pod, r.ID) }
}

// killedStatus is the exit status of a process ended by SIGKILL, in a shell's notation.
const killedStatus = 137

// endAsleep returns the killer for a pod that sleeps. One that was woken meanwhile it does not end.
func (t *control) endAsleep(r *journal.Record) killer {
	status := killedStatus
	if r.Completed {
		status = 0
	}
	return func(ctx context.Context, pod *cri.Pod) error { return t.runtime.EndAsleep(ctx, pod, status) }
}

// exitStatus is the marker's content: the exit status that containers report. Empty means that of a process killed by
// SIGKILL.
func exitStatus(r *journal.Record) []byte {
	switch {
	case r.Completed:
		return []byte("0")
	case r.Ending:
		return []byte(terminated)
	}
	return nil
}

// terminated is the exit status of a process ended by SIGTERM, in a shell's notation.
const terminated = "143"

// stop ends a sandbox whose snapshot is spooled. Nothing in it runs again. The marker tells the shim that the exit was
// intended.
func (t *control) stop(pod *cri.Pod, rec *journal.Record, watch *stopwatch, kill killer) error {
	ctx, cancel := context.WithTimeout(context.Background(), resumeTime) // even if the request was given up
	defer cancel()
	marker := filepath.Join(t.stoppedDir, pod.ID)
	if err := durable.Replace(marker, exitStatus(rec)); err != nil {
		return fmt.Errorf("mark sandbox %s as stopped: %w", pod.ID, err)
	}
	if err := kill(ctx, pod); err != nil {
		ended, lookErr := t.hasEnded(ctx, pod.ID)
		if errors.Is(err, lease.ErrRanOut) || lookErr != nil || !ended { // else only the answer was lost
			return errors.Join(err, os.Remove(marker))
		}
	}
	watch.lap("stop")
	rec.Stopped = true
	return nil
}

// hasEnded reports whether a sandbox has ended. Containerd may learn of that later. A pod that sleeps has not ended,
// although its sandbox's process is gone.
func (t *control) hasEnded(ctx context.Context, sandbox string) (bool, error) {
	pod, err := t.runtime.Get(ctx, sandbox)
	if errors.Is(err, cri.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return !pod.Ready || !pod.Alive() && !t.asleep(sandbox), nil
}

// unmark removes the marker of a sandbox that runs on.
func (t *control) unmark(sandbox string) error {
	if err := durable.Remove(filepath.Join(t.stoppedDir, sandbox)); err != nil {
		return fmt.Errorf("unmark sandbox %s: %w", sandbox, err)
	}
	return nil
}

// cleanMarkers removes the markers of sandboxes that containerd no longer knows.
func (t *control) cleanMarkers(ctx context.Context) {
	entries, err := os.ReadDir(t.stoppedDir)
	if err != nil {
		t.log.Warn("markers unreadable", "error", err)
		return
	}
	for _, e := range entries {
		if _, err := t.runtime.Get(ctx, e.Name()); errors.Is(err, cri.ErrNotFound) {
			os.Remove(filepath.Join(t.stoppedDir, e.Name())) // the next call retries
		}
	}
}
