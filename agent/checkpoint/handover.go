package checkpoint

import (
	"context"
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
	p := c.pauser()
	if err := p.check(life); err != nil {
		return err
	}
	if err := c.entry.noteOrFail(journal.StagePaused); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		failure := p.resume()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(life), resumeTime)
		defer cancel()
		c.o.Handover.Leave(ctx, c.pod)
		err = c.resumed(err, failure)
	}()
	watch := func(ctx context.Context) error { return c.o.Handover.Watch(ctx, c.pod, c.running) }
	if err := p.within(life, "watch", watch); err != nil {
		return err
	}
	if err := c.savePaused(life, p); err != nil {
		return err
	}
	c.o.Progress("fall asleep", 0, 0)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(life), resumeTime)
	defer cancel()
	if err := c.o.Handover.Take(ctx, c.pod, c.rec.ID, snapshots.ID{Key: c.rec.Key, UID: c.rec.UID}); err != nil {
		return err
	}
	c.watch.lap("fall asleep")
	return nil
}
