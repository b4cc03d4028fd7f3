package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
)

// Handover takes a sandbox over that is paused and saved, instead of it running on. So a pod falls asleep.
type Handover interface {
	// Watch is called before the sandbox is paused, with the ids of its containers that run. An error ends the request.
	Watch(ctx context.Context, pod *cri.Pod, containers []string) error
	// Take takes the sandbox over. It is paused for request, and its snapshot is in the spool. After an error the sandbox
	// runs on.
	Take(ctx context.Context, pod *cri.Pod, request string, id snapshots.ID) error
	// Leave undoes Watch, after an error.
	Leave(ctx context.Context, pod *cri.Pod)
}

// saveAndHandOver pauses the sandbox, saves it, and hands it over once its snapshot is spooled. If anything fails, the
// sandbox runs on.
func (c *checkpoint) saveAndHandOver(life context.Context) (err error) {
	if c.o.Scope != snapshot.WholePod {
		return fmt.Errorf("pod %s: %w: its snapshots are to be %s, and it cannot be woken from these", c.pod,
			errkind.ErrInvalid, c.o.Scope)
	}
	if paused, err := c.cs.Runtime.Paused(life, c.pod.ID); err != nil || paused {
		return errors.Join(err, notPaused(c.pod, paused))
	}
	if err := c.entry.noteOrFail(journal.StagePaused); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		failure := c.resume()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(life), resumeTime)
		defer cancel()
		c.o.Handover.Leave(ctx, c.pod)
		if failure != nil {
			c.entry.owing = true
			err = fmt.Errorf("%w; sandbox %s may still be paused, resuming it is retried: %w", err, c.pod.ID, failure)
		}
	}()
	pauser := c.pauser()
	watch := func(ctx context.Context) error { return c.o.Handover.Watch(ctx, c.pod, c.running) }
	if err := pauser.within(life, "watch", watch); err != nil {
		return err
	}
	c.volumes.findOutside(c.pod, c.meta.Pod, c.o.Scope)
	release, err := pauser.pause(life)
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
	c.volumes.outside.Sync(c.log)
	release() // stops renewing; the lease lasts longer than the handover takes
	c.o.Progress("fall asleep", 0, 0)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(life), resumeTime)
	defer cancel()
	if err := c.o.Handover.Take(ctx, c.pod, c.rec.ID, snapshots.ID{Key: c.rec.Key, UID: c.rec.UID}); err != nil {
		return err
	}
	c.watch.lap("fall asleep")
	return nil
}
