package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/cri"
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
	release, err := c.pauser().pause(life)
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
	if err := c.cs.control.stop(c.pod, c.rec, c.watch, c.cs.control.killPaused(c.rec)); err != nil {
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
	ctx, cancel := context.WithTimeout(context.Background(), resumeTime) // even if the request was given up
	defer cancel()
	return c.cs.control.unpause(ctx, c.pod.ID, c.rec.ID)
}
