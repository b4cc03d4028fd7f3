package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/agent/checkpoint/room"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/outside"
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
	p := &sleepCopier{
		sleeps: c.cs.Sleeps, spool: c.cs.Stores.Spool(), control: c.cs.control, node: c.cs.Node, accepted: c.accepted,
		entry: c.entry, room: c.room, watch: c.watch,
	}
	if saved, err = p.save(ctx, life); saved || err != nil {
		return saved, err
	}
	return false, c.awaken(ctx)
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

// sleepCopier saves a pod that sleeps.
type sleepCopier struct {
	sleeps  Sleeps
	spool   *storage.Store
	control *control
	node    string
	accepted
	entry *entry
	room  *room.Room
	watch *stopwatch
}

// save saves the pod. If it must be woken for that, or was woken meanwhile, saved is false.
func (p *sleepCopier) save(ctx, life context.Context) (saved bool, err error) {
	of, err := p.sleepsOn(ctx)
	if err == nil && of != nil {
		err = p.copy(life, of)
		saved = err == nil
	}
	if errors.Is(err, storage.ErrNotFound) { // nobody needs it any more
		err = nil
	}
	return saved, err
}

// sleepsOn returns the snapshot on which the pod sleeps. It returns nil if the pod must be woken to be saved: only its
// files are to be kept, or this node does not have that snapshot, or the pod is being woken.
func (p *sleepCopier) sleepsOn(ctx context.Context) (*storage.Manifest, error) {
	id, ok := p.sleeps.SleepsOn(p.rec.SandboxID)
	if !ok || p.o.Scope != snapshot.WholePod {
		return nil, nil
	}
	m, err := p.spool.TrustedManifest(ctx, id.Key)
	switch {
	case errors.Is(err, storage.ErrNotFound) || err == nil && m.Meta.UID != id.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("pod %s sleeps, and its snapshot cannot be read: %w", p.pod, err)
	}
	return m, nil
}

// copy makes a snapshot of the same packs as the one on which the pod sleeps and, if asked to, ends the pod in its
// sleep. An error of kind storage.ErrNotFound says that the latter is gone: the pod has been woken.
func (p *sleepCopier) copy(life context.Context, of *storage.Manifest) (err error) {
	if p.rec.Warning, err = p.description.NetAdmin.Check(p.ref(), of.Meta.Pod, p.o.Scope, false); err != nil {
		return err
	}
	if err := p.room.TakeCopy(); err != nil {
		return err
	}
	p.rec.CopyOf = of.Meta.UID
	if err := p.entry.noteOrFail(journal.StageAccepted); err != nil { // who settles the request needs it
		return err
	}
	p.o.Progress("copy", 0, 0)
	if _, err := p.spool.Duplicate(life, of, p.copied(of)); err != nil {
		p.rec.CopyOf = ""
		return fmt.Errorf("pod %s sleeps, and its snapshot cannot be copied: wake it first: %w", p.pod, err)
	}
	p.watch.lap("copy")
	var notLookedFor *outside.Files
	p.rec.Stored = 1 // its packs are counted already
	p.rec.Warning = joinWarnings(p.rec.Warning, notLookedFor.Warning(of.Meta.Volumes))
	p.entry.noteOrOwe(journal.StageSpooled)
	if !p.o.Stop {
		return nil
	}
	if err := p.control.stop(p.pod, p.rec, p.watch, p.control.endAsleep(p.rec)); err != nil {
		return err
	}
	p.entry.noteOrOwe(journal.StageSpooled)
	return nil
}

// copied returns what the copy of a snapshot says of itself. It is of this request, and of the pod as it is described
// now. What a restore needs to know of the sandbox is as it was when the pod fell asleep.
func (p *sleepCopier) copied(of *storage.Manifest) snapshot.Meta {
	m := of.Meta
	m.Key, m.UID, m.Purpose, m.Inheritable, m.Origin = p.rec.Key, p.rec.UID, p.rec.Purpose, false, p.origin(p.node)
	m.Parent = &of.Meta.Key
	m.Created, m.Timeline, m.Overflow = time.Now(), p.watch.stages, 0
	return m
}
