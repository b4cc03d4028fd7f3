package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/snapshots"
	"diapause.dev/runsc/lease"
	"diapause.dev/storage"
)

// settleEvery is how often unsettled requests are retried.
const settleEvery = time.Second

// SettleLoop settles the unsettled requests, again and again, until ctx is done. The next agent finds the rest in the
// journal. Requests of several sandboxes are settled at the same time, so that none waits for another one's sandbox.
func (cs *Checkpoints) SettleLoop(ctx context.Context) error {
	cs.settler.loop(ctx)
	return nil
}

// settler settles requests that nothing works on any longer. Its methods may be called concurrently.
type settler struct {
	control    *control
	runtime    Runtime
	journal    *journal.Journal
	unsettled  *journal.Unsettled
	sandboxes  *keylock.Locks
	replicator *snapshots.Replicator
	spool      *storage.Store
	changed    func(*journal.Record)
	log        *slog.Logger
}

// loop is Checkpoints.SettleLoop.
func (s *settler) loop(ctx context.Context) {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, r := range s.unsettled.List() {
			group.Go(func() { s.settleInTurn(ctx, r) })
		}
	}
}

// settleInTurn settles a request, unless another request works on its sandbox. Then the next call tries again.
func (s *settler) settleInTurn(ctx context.Context, r *journal.Record) {
	release := s.sandboxes.TryLock(r.SandboxID)
	if release == nil {
		return
	}
	defer release()
	if !s.unsettled.Has(r.ID) {
		return // another call has settled it
	}
	if s.settle(ctx, r) {
		s.unsettled.Remove(r)
		s.replicator.Wake()
	}
}

// settle does what is left to do for a request that nothing works on any longer, and reports whether it succeeded. Such
// a request is over in this agent and unsettled, or an earlier agent left it at any stage, perhaps only accepted.
func (s *settler) settle(ctx context.Context, r *journal.Record) bool {
	ctx, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()
	log := s.log.With("request", r.ID, "pod", r.Pod, "snapshot", r.Key.String())
	if err := s.settleOne(ctx, r); err != nil {
		log.Error("request not settled; it is retried", "error", err)
		return false
	}
	s.changed(r)
	log.Info("settled a request that was left", "stage", r.Stage, "reason", r.Error)
	return true
}

// settleOne brings the sandbox and the journal to where the request must end. If the snapshot is safe, that is spooled:
// the replicator goes on from there. Otherwise the request has failed.
func (s *settler) settleOne(ctx context.Context, r *journal.Record) error {
	safe, err := s.safe(ctx, r)
	switch {
	case err != nil:
		return err
	case safe && toBeStopped(r):
		return s.settleStop(ctx, r)
	case safe:
		if err := s.resumeLeft(ctx, r); err != nil {
			return err
		}
		r.Stage = journal.StageSpooled
		return s.journal.Put(r)
	}
	// A request may be spooled and not safe: its snapshot was in the spool, and is gone or damaged now. If its sandbox was
	// to be stopped, it may still be paused. It must not be stopped: nothing else has its state.
	if r.Stage == journal.StagePaused || r.Stage == journal.StageSpooled && toBeStopped(r) {
		if err := s.control.unpause(ctx, r.SandboxID, r.ID); err != nil {
			return err
		}
	}
	r.Stage, r.Error = journal.StageFailed, cmp.Or(r.Error, "the agent ended before the snapshot was complete")
	return s.journal.Put(r)
}

// safe reports whether the snapshot of a request is in the spool. It checks the UID: another snapshot may have the same
// name. A snapshot whose manifest is damaged is not safe.
func (s *settler) safe(ctx context.Context, r *journal.Record) (bool, error) {
	if !r.Named() {
		return false, nil
	}
	m, err := s.spool.Manifest(ctx, r.Key)
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
func (s *settler) settleStop(ctx context.Context, r *journal.Record) error {
	if r.CopyOf != "" {
		return s.settleAsleep(ctx, r)
	}
	paused, err := s.control.pausedFor(ctx, r)
	if err != nil {
		return err
	}
	r.Stage = journal.StageSpooled
	if !paused {
		if err := s.noteEnd(ctx, r); err != nil {
			return err
		}
		return s.journal.Put(r)
	}
	pod, err := s.runtime.Get(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	err = s.control.stop(pod, r, newStopwatch(), s.control.killPaused(r))
	if errors.Is(err, lease.ErrRanOut) {
		// The sandbox has run or ended meanwhile, or an agent without leases has paused it.
		if err = s.control.resumeIfPaused(ctx, r.SandboxID); err == nil {
			err = s.noteEnd(ctx, r)
		}
	}
	if err != nil {
		return err
	}
	return s.journal.Put(r)
}

// settleAsleep ends a pod that sleeps, of whose snapshot the request has made a copy, unless it has been woken since.
func (s *settler) settleAsleep(ctx context.Context, r *journal.Record) error {
	r.Stage = journal.StageSpooled
	if id, ok := s.control.sleepsOn(r.SandboxID); !ok || id.UID != r.CopyOf {
		if err := s.noteEnd(ctx, r); err != nil {
			return err
		}
		return s.journal.Put(r)
	}
	pod, err := s.runtime.Get(ctx, r.SandboxID)
	if err == nil {
		err = s.control.stop(pod, r, newStopwatch(), s.control.endAsleep(r))
	}
	if err != nil {
		return err
	}
	return s.journal.Put(r)
}

// resumeLeft resumes a sandbox whose handover an earlier agent has begun, unless it was handed over.
func (s *settler) resumeLeft(ctx context.Context, r *journal.Record) error {
	if !r.Sleep {
		return nil
	}
	return s.control.unpause(ctx, r.SandboxID, r.ID)
}

// noteEnd records what became of a sandbox that was to be stopped and is not paused.
func (s *settler) noteEnd(ctx context.Context, r *journal.Record) error {
	ended, err := s.control.hasEnded(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	if ended {
		r.Stopped = true
		return nil
	}
	// A later exit is not one that was intended.
	if err := s.control.unmark(r.SandboxID); err != nil {
		return err
	}
	r.RunsOn = "the agent ended before the sandbox was stopped"
	return nil
}
