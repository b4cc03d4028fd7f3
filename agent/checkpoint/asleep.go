package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// A pod that sleeps is saved already. So its checkpoint does not wake it: it makes a second snapshot of the packs of
// the one on which the pod sleeps. The sandbox's lock is held meanwhile, so the pod cannot fall asleep again on
// another one. If something wakes it meanwhile, the snapshot has the pod as it was when its turn came, and the pod is
// not ended.

// saveAsleep saves a pod that sleeps. If it must be woken for that, or was woken meanwhile, saved is false, and the pod
// is awake.
func (c *checkpoint) saveAsleep(ctx, life context.Context) (saved bool, err error) {
	if err := c.confirmStop(ctx); err != nil {
		return false, err
	}
	of, err := c.sleepsOn(ctx)
	if err == nil && of != nil {
		err = c.copySleep(life, of)
		saved = err == nil
	}
	if errors.Is(err, storage.ErrNotFound) { // nobody needs it any more
		of, err = nil, nil
	}
	if err == nil && of == nil {
		err = c.awaken(ctx)
	}
	return saved, err
}

// sleepsOn returns the snapshot on which the pod sleeps. It returns nil if the pod must be woken to be saved: only its
// files are to be kept, or this node does not have that snapshot, or the pod is being woken.
func (c *checkpoint) sleepsOn(ctx context.Context) (*storage.Manifest, error) {
	id, ok := c.cs.Sleeps.SleepsOn(c.rec.SandboxID)
	if !ok || c.o.Scope != snapshot.WholePod {
		return nil, nil
	}
	m, err := c.cs.Stores.Spool().TrustedManifest(ctx, id.Key)
	switch {
	case errors.Is(err, storage.ErrNotFound) || err == nil && m.Meta.UID != id.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("pod %s sleeps, and its snapshot cannot be read: %w", c.pod, err)
	}
	return m, nil
}

// awaken wakes the pod, which is then saved as any other.
func (c *checkpoint) awaken(ctx context.Context) (err error) {
	c.o.Progress("wake", 0, 0)
	if err := c.cs.Sleeps.Wake(ctx, c.rec.SandboxID); err != nil {
		return fmt.Errorf("pod %s sleeps, and must be woken to be saved: %w", c.pod, err)
	}
	c.asleep = false
	if c.pod, err = c.cs.Runtime.Get(ctx, c.rec.SandboxID); err != nil {
		return err
	}
	c.watch.lap("wake")
	return nil
}

// copySleep makes a snapshot of the same packs as the one on which the pod sleeps and, if asked to, ends the pod in its
// sleep. An error of kind storage.ErrNotFound says that the latter is gone: the pod has been woken.
func (c *checkpoint) copySleep(life context.Context, of *storage.Manifest) (err error) {
	if c.rec.Warning, err = c.description.NetAdmin.Check(c.ref(), of.Meta.Pod, c.o.Scope, false); err != nil {
		return err
	}
	if err := c.room.TakeCopy(); err != nil {
		return err
	}
	c.rec.CopyOf = of.Meta.UID
	if err := c.entry.noteOrFail(journal.StageAccepted); err != nil { // who settles the request needs it
		return err
	}
	c.o.Progress("copy", 0, 0)
	if _, err := c.cs.Stores.Spool().Duplicate(life, of, c.copied(of)); err != nil {
		c.rec.CopyOf = ""
		return fmt.Errorf("pod %s sleeps, and its snapshot cannot be copied: wake it first: %w", c.pod, err)
	}
	c.watch.lap("copy")
	c.rec.Stored = 1 // its packs are counted already
	c.rec.Warning = joinWarnings(c.rec.Warning, c.volumes.outside.Warning(of.Meta.Volumes))
	c.entry.noteOrOwe(journal.StageSpooled)
	if !c.o.Stop {
		return nil
	}
	if err := c.cs.control.stop(c.pod, c.rec, c.watch, c.cs.control.endAsleep(c.rec)); err != nil {
		return err
	}
	c.entry.noteOrOwe(journal.StageSpooled)
	return nil
}

// copied returns what the copy of a snapshot says of itself. It is of this request, and of the pod as it is described
// now. What a restore needs to know of the sandbox is as it was when the pod fell asleep.
func (c *checkpoint) copied(of *storage.Manifest) snapshot.Meta {
	m := of.Meta
	m.Key, m.UID, m.Purpose, m.Inheritable, m.Origin = c.rec.Key, c.rec.UID, c.rec.Purpose, false, c.origin(c.cs.Node)
	m.Parent = &of.Meta.Key
	m.Created, m.Timeline, m.Overflow = time.Now(), c.watch.stages, 0
	return m
}
