package checkpoint

import (
	"context"

	"diapause.dev/agent/journal"
)

// saveAndStop pauses the sandbox, saves it, and ends it once its snapshot is spooled. If anything fails before the end,
// the sandbox runs on.
func (c *checkpoint) saveAndStop(life context.Context) (err error) {
	p := c.pauser()
	if err := p.check(life); err != nil {
		return err
	}
	if err := c.entry.noteOrFail(journal.StagePaused); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = c.resumed(err, p.resume())
		}
	}()
	if err := c.savePaused(life, p); err != nil {
		return err
	}
	if err := c.cs.control.stop(c.pod, c.rec, c.watch, c.cs.control.killPaused(c.rec)); err != nil {
		return err
	}
	c.entry.noteOrOwe(journal.StageSpooled)
	return nil
}
