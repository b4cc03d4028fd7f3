package checkpoint

import (
	"context"
	"fmt"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/runsc/capture"
)

func (c *checkpoint) saveRunning(life context.Context) error {
	c.volumes.findOutside(c.pod, c.meta.Pod, c.o.Scope)
	im, err := c.take(life)
	if err != nil {
		return err
	}
	if err := c.toSpool(life, im); err != nil || c.o.sentry == nil || !c.description.Stop {
		return err
	}
	if err := c.confirmation().within(life, savedTime); err != nil {
		return err
	}
	// The sentry has already let the sandbox run on. What it has done since is lost.
	c.rec.Completed = true
	if err := c.cs.control.stop(c.pod, c.rec, c.watch, c.cs.Runtime.Kill); err != nil {
		return err
	}
	c.entry.noteOrOwe(journal.StageSpooled)
	return nil
}

// pauser returns what pauses the sandbox.
func (c *checkpoint) pauser() *pauser {
	return &pauser{runtime: c.cs.Runtime, control: c.cs.control, pod: c.pod, request: c.rec.ID, log: c.log}
}

// savePaused pauses the sandbox and saves it. After that the lease of the pause is no longer renewed; it lasts longer
// than what comes next, the stop or the handover.
func (c *checkpoint) savePaused(life context.Context, p *pauser) error {
	c.volumes.findOutside(c.pod, c.meta.Pod, c.o.Scope)
	release, err := p.pause(life)
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
	return nil
}

// resumed returns the error of a save, after which the sandbox was to be resumed. If that has failed, the request is
// settled later.
func (c *checkpoint) resumed(err, failure error) error {
	if failure == nil {
		return err
	}
	c.entry.owing = true
	return fmt.Errorf("%w; sandbox %s may still be paused, resuming it is retried: %w", err, c.pod.ID, failure)
}

// take captures the image of the sandbox.
func (c *checkpoint) take(life context.Context) (*capture.Image, error) {
	t := &capturer{
		runtime: c.cs.Runtime, expected: c.cs.captures, requests: c.cs.Requests, socket: c.cs.SidecarSocket,
		keepCPULimits: c.cs.KeepCPULimits, limit: c.cs.CaptureTime, spoolDir: c.cs.Stores.SpoolDir(),
		request: c.rec.ID, pod: c.pod, scope: c.o.Scope, sentry: c.o.sentry, running: c.running, record: &c.meta.Pod,
		volumes: &c.volumes, room: c.room, arena: c.arena,
		progress: c.o.Progress, watch: c.watch, log: c.log,
	}
	return t.take(life)
}

// toSpool compresses and stores the captured image. When it returns without an error, the snapshot is restorable on
// this node, whatever happens to the agent or the machine.
func (c *checkpoint) toSpool(ctx context.Context, im *capture.Image) error {
	total, err := c.spool.Write(ctx, im, c.volumes.inside, c.arena)
	if err != nil {
		return err
	}
	c.meta.Created = time.Now()
	c.meta.Overflow = c.arena.Overflow()
	c.meta.Memory = im.Memory
	c.meta.Timeline = c.watch.stages
	c.meta.Volumes = c.volumes.noted
	if err := c.spool.Commit(ctx, c.meta); err != nil {
		return err
	}
	c.o.Progress("spool", total, total)
	c.watch.lap("spool")
	c.cs.Lineage.Set(c.pod.ID, c.o.Scope, c.rec.Key)
	c.rec.Stored = max(c.spool.Stored(), 1)
	c.rec.Warning = joinWarnings(c.rec.Warning, c.volumes.outside.Warning(c.meta.Volumes))
	c.entry.noteOrOwe(journal.StageSpooled)
	return nil
}
