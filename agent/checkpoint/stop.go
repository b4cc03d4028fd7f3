package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/cri"
	"diapause.dev/runsc/durable"
	"diapause.dev/runsc/lease"
)

// resumeTime bounds the time to undo a pause, and the time to kill a sandbox whose snapshot is spooled. The end of the
// request or of the agent interrupts neither.
const resumeTime = time.Minute

// saveAndStop pauses the sandbox, saves it, and ends it once its snapshot is spooled. If anything fails before the end,
// the sandbox runs on.
func (c *checkpoint) saveAndStop(life context.Context) (err error) {
	if paused, err := c.cs.Runtime.Paused(life, c.pod.ID); err != nil || paused {
		return errors.Join(err, notPaused(c.pod, paused))
	}
	if err := c.noteOrFail(journal.StagePaused); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if failure := c.resume(); failure != nil {
			c.owing = true
			err = fmt.Errorf("%w; sandbox %s may still be paused, resuming it is retried: %w", err, c.pod.ID, failure)
		}
	}()
	c.findOutside()
	release, err := c.pause(life)
	defer release()
	if err != nil {
		return err
	}
	c.watch.lap("pause")
	im, err := c.take(life)
	if err != nil {
		return err
	}
	if err := c.toSpool(life, im); err != nil {
		return err
	}
	c.outside.Sync(c.log)
	release() // stops renewing; the lease lasts longer than the stop takes
	if err := c.cs.stop(c.pod, c.rec, c.watch, c.cs.killPaused(c.rec)); err != nil {
		return err
	}
	c.noteOrOwe(journal.StageSpooled)
	return nil
}

// notPaused refuses a sandbox that somebody else has paused: the agent may not resume it.
func notPaused(pod *cri.Pod, paused bool) error {
	if !paused {
		return nil
	}
	return fmt.Errorf("pod %s: %w: it is paused, and not by the agent: resume it first", pod, errkind.ErrInvalid)
}

// resume undoes a pause. It does nothing for a sandbox that is gone or not paused.
func (c *checkpoint) resume() error {
	ctx, cancel := context.WithTimeout(context.Background(), resumeTime)
	defer cancel()
	return c.cs.unpause(ctx, c.pod.ID, c.rec.ID)
}

// unpause resumes a sandbox that was paused for a request, and ends the pause's lease. If the request does not hold the
// lease, or the shim knows none, unpause resumes the sandbox if it is paused.
func (cs *Checkpoints) unpause(ctx context.Context, id, request string) error {
	err := cs.Runtime.EndPause(ctx, id, request)
	switch {
	case err == nil:
		return nil
	case statusTells(err):
		return cs.resumeIfPaused(ctx, id)
	}
	return cs.unlessEnded(ctx, id, err)
}

// statusTells reports whether a sandbox's status tells whether it is paused, after an error about the lease of a pause:
// the lease is not held, or the shim knows none. While a lease is held, containerd says that the sandbox runs.
func statusTells(err error) bool {
	return errors.Is(err, lease.ErrRanOut) || errdefs.IsInvalidArgument(err)
}

// unlessEnded returns an error of a request about a sandbox, or nil if that has ended: then nothing is left to do.
func (cs *Checkpoints) unlessEnded(ctx context.Context, id string, err error) error {
	if ended, lookErr := cs.hasEnded(ctx, id); lookErr == nil && ended {
		return nil
	}
	return err
}

// pausedFor reports whether a sandbox is still paused for a request. If so, it extends the lease of the pause.
func (cs *Checkpoints) pausedFor(ctx context.Context, r *journal.Record) (paused bool, err error) {
	err = cs.Runtime.RenewPause(ctx, r.SandboxID, r.ID, pauseLease)
	switch {
	case err == nil:
		return true, nil
	case !statusTells(err):
		return false, cs.unlessEnded(ctx, r.SandboxID, err)
	}
	paused, err = cs.Runtime.Paused(ctx, r.SandboxID)
	if errors.Is(err, cri.ErrNotFound) {
		return false, nil
	}
	return paused, err
}

func (cs *Checkpoints) resumeIfPaused(ctx context.Context, id string) error {
	paused, err := cs.Runtime.Paused(ctx, id)
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	if err != nil || !paused {
		return err
	}
	return cs.Runtime.Resume(ctx, id)
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
func (cs *Checkpoints) stop(pod *cri.Pod, rec *journal.Record, watch *stopwatch, kill killer) error {
	ctx, cancel := context.WithTimeout(context.Background(), resumeTime)
	defer cancel()
	marker := filepath.Join(cs.StoppedDir, pod.ID)
	if err := durable.Replace(marker, exitStatus(rec)); err != nil {
		return fmt.Errorf("mark sandbox %s as stopped: %w", pod.ID, err)
	}
	if err := kill(ctx, pod); err != nil {
		ended, lookErr := cs.hasEnded(ctx, pod.ID)
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
func (cs *Checkpoints) hasEnded(ctx context.Context, sandbox string) (bool, error) {
	pod, err := cs.Runtime.Get(ctx, sandbox)
	if errors.Is(err, cri.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return !pod.Ready || !pod.Alive() && !cs.sleeps(sandbox), nil
}

// CleanMarkers removes the markers of sandboxes that containerd no longer knows.
func (cs *Checkpoints) CleanMarkers(ctx context.Context) {
	entries, err := os.ReadDir(cs.StoppedDir)
	if err != nil {
		cs.log.Warn("markers unreadable", "error", err)
		return
	}
	for _, e := range entries {
		if _, err := cs.Runtime.Get(ctx, e.Name()); errors.Is(err, cri.ErrNotFound) {
			os.Remove(filepath.Join(cs.StoppedDir, e.Name())) // the next call retries
		}
	}
}
