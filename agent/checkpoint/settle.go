package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/runsc/durable"
	"diapause.dev/runsc/lease"
	"diapause.dev/storage"
)

// settleEvery is how often unsettled requests are retried.
const settleEvery = time.Second

// SettleLoop settles the unsettled requests, again and again, until ctx is done. The next agent finds the rest in the
// journal. Requests of several sandboxes are settled at the same time, so that none waits for another one's sandbox.
func (cs *Checkpoints) SettleLoop(ctx context.Context) error {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, r := range cs.Unsettled.List() {
			group.Go(func() { cs.settleInTurn(ctx, r) })
		}
	}
}

// settleInTurn settles a request, unless another request works on its sandbox. Then the next call tries again.
func (cs *Checkpoints) settleInTurn(ctx context.Context, r *journal.Record) {
	release := cs.Sandboxes.TryLock(r.SandboxID)
	if release == nil {
		return
	}
	defer release()
	if !cs.Unsettled.Has(r.ID) {
		return // another call has settled it
	}
	if cs.settle(ctx, r) {
		cs.Unsettled.Remove(r)
		cs.Replicator.Wake()
	}
}

// settle does what is left to do for a request that nothing works on any longer, and reports whether it succeeded. Such
// a request is over in this agent and unsettled, or an earlier agent left it at any stage, perhaps only accepted.
func (cs *Checkpoints) settle(ctx context.Context, r *journal.Record) bool {
	ctx, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()
	log := cs.log.With("request", r.ID, "pod", r.Pod, "snapshot", r.Key.String())
	if err := cs.settleOne(ctx, r); err != nil {
		log.Error("request not settled; it is retried", "error", err)
		return false
	}
	cs.Changed(r)
	log.Info("settled a request that was left", "stage", r.Stage, "reason", r.Error)
	return true
}

// settleOne brings the sandbox and the journal to where the request must end. If the snapshot is safe, that is spooled:
// the replicator goes on from there. Otherwise the request has failed.
func (cs *Checkpoints) settleOne(ctx context.Context, r *journal.Record) error {
	safe, err := cs.safe(ctx, r)
	switch {
	case err != nil:
		return err
	case safe && toBeStopped(r):
		return cs.settleStop(ctx, r)
	case safe:
		if err := cs.resumeLeft(ctx, r); err != nil {
			return err
		}
		r.Stage = journal.StageSpooled
		return cs.Journal.Put(r)
	}
	// A request may be spooled and not safe: its snapshot was in the spool, and is gone or damaged now. If its sandbox was
	// to be stopped, it may still be paused. It must not be stopped: nothing else has its state.
	if r.Stage == journal.StagePaused || r.Stage == journal.StageSpooled && toBeStopped(r) {
		if err := cs.unpause(ctx, r.SandboxID, r.ID); err != nil {
			return err
		}
	}
	r.Stage, r.Error = journal.StageFailed, cmp.Or(r.Error, "the agent ended before the snapshot was complete")
	return cs.Journal.Put(r)
}

// safe reports whether the snapshot of a request is in the spool. It checks the UID: another snapshot may have the same
// name. A snapshot whose manifest is damaged is not safe.
func (cs *Checkpoints) safe(ctx context.Context, r *journal.Record) (bool, error) {
	if !r.Named() {
		return false, nil
	}
	m, err := cs.Stores.Spool().Manifest(ctx, r.Key)
	switch {
	case errors.Is(err, storage.ErrCorrupt):
		r.Error = cmp.Or(r.Error, err.Error())
		return false, nil
	case errors.Is(err, storage.ErrNotFound):
		return false, nil
	}
	return err == nil && m.Meta.UID == r.UID, err
}

// toBeStopped reports whether a request is still to stop its sandbox. One that has given that up must leave the sandbox
// alone: a newer request may have paused it.
func toBeStopped(r *journal.Record) bool { return r.Stop && !r.Stopped && r.RunsOn == "" }

// settleStop ends a sandbox whose snapshot is spooled, if the sandbox is still paused: then nothing has run in it
// since.
func (cs *Checkpoints) settleStop(ctx context.Context, r *journal.Record) error {
	if r.CopyOf != "" {
		return cs.settleAsleep(ctx, r)
	}
	paused, err := cs.pausedFor(ctx, r)
	if err != nil {
		return err
	}
	r.Stage = journal.StageSpooled
	if !paused {
		if err := cs.noteEnd(ctx, r); err != nil {
			return err
		}
		return cs.Journal.Put(r)
	}
	pod, err := cs.Runtime.Get(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	err = cs.stop(pod, r, newStopwatch(), cs.killPaused(r))
	if errors.Is(err, lease.ErrRanOut) {
		// The sandbox has run or ended meanwhile, or an agent without leases has paused it.
		if err = cs.resumeIfPaused(ctx, r.SandboxID); err == nil {
			err = cs.noteEnd(ctx, r)
		}
	}
	if err != nil {
		return err
	}
	return cs.Journal.Put(r)
}

// noteEnd records what became of a sandbox that was to be stopped and is not paused.
func (cs *Checkpoints) noteEnd(ctx context.Context, r *journal.Record) error {
	ended, err := cs.hasEnded(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	if ended {
		r.Stopped = true
		return nil
	}
	// A later exit is not one that was intended.
	if err := durable.Remove(filepath.Join(cs.StoppedDir, r.SandboxID)); err != nil {
		return fmt.Errorf("unmark sandbox %s: %w", r.SandboxID, err)
	}
	r.RunsOn = "the agent ended before the sandbox was stopped"
	return nil
}
