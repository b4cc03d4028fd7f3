package checkpoint

import (
	"context"
	"time"

	"diapause.dev/agent/volumes"
	"diapause.dev/api/snapshot"
)

// leftBehind is the warning for a pod in which a session by exec may have left a process running.
const leftBehind = "a restore ends what kubectl exec has left running in the pod: the sandbox runs with gVisor's own " +
	"build of runsc"

// workloadTime bounds how long a save that a workload has begun waits for memory. Nobody else sets it a limit.
const workloadTime = 150 * time.Second

// takeMemory waits for this checkpoint's share of the memory for all checkpoints.
func (c *checkpoint) takeMemory(ctx context.Context) error {
	if c.o.sentry != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, workloadTime)
		defer cancel()
	}
	return c.room.TakeMemory(ctx, c.pod.SandboxPID, c.o.Progress, c.watch.lap)
}

// prepare does everything that can be done before the pause.
func (c *checkpoint) prepare(ctx, life context.Context) (err error) {
	facts, err := c.cs.Facts(ctx, c.pod.SandboxPID)
	if err != nil {
		return err
	}
	if c.running, err = c.cs.Runtime.Running(ctx, c.pod.ID); err != nil {
		return err
	}
	rec, err := c.cs.Runtime.Record(ctx, c.pod.ID)
	if err != nil {
		return err
	}
	if c.rec.Warning, err = c.description.NetAdmin.Check(c.ref(), rec, c.o.Scope, c.o.Handover != nil); err != nil {
		return err
	}
	if !facts.Repaired && c.o.Handover == nil && c.o.Scope == snapshot.WholePod && c.cs.Sessions(c.pod.ID) {
		c.rec.Warning = joinWarnings(c.rec.Warning, leftBehind)
	}
	c.meta = snapshot.Meta{
		Key: c.rec.Key, UID: c.rec.UID, Scope: c.o.Scope, Purpose: c.rec.Purpose, Inheritable: c.rec.Inheritable,
		Facts: facts, Pod: rec, Origin: c.origin(c.cs.Node),
	}
	of := volumes.Config{
		Spool: c.cs.Stores.SpoolDir(), Encrypted: c.cs.Stores.Encrypted(), Limit: c.cs.VolumeLimit, Logger: c.log,
	}
	if err := c.volumes.find(ctx, of, c.pod, rec, c.o.Scope); err != nil {
		return err
	}
	if err := c.room.Fits(c.pod.SandboxPID, c.volumes.inside.Size()); err != nil {
		return err
	}
	if err := c.room.TakeDisk(c.pod.SandboxPID, c.volumes.inside.Size(), c.spool.Precopy.Large); err != nil {
		return err
	}
	if c.arena, err = c.spool.Prepare(ctx, life, c.pod.SandboxPID); err != nil {
		return err
	}
	c.watch.lap("prepare")
	return nil
}
