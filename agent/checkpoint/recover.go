package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"diapause.dev/agent/durable"
	"diapause.dev/agent/journal"
	"diapause.dev/cri"
	"diapause.dev/runsc/lease"
	"diapause.dev/storage"
)

// Recover finishes what an earlier agent left: it resumes or ends the sandboxes that were paused, and ends interrupted
// requests. It runs before the local service answers. SettleLoop retries what fails here.
func (cs *Checkpoints) Recover(ctx context.Context) {
	for _, r := range cs.Journal.Where(func(r *journal.Record) bool { return !r.Ended() }) {
		if !cs.settle(ctx, r) {
			cs.Unsettled.Add(r)
		}
	}
	cs.resumeLost(ctx)
}

// settle does the remaining work for a request that is over, and reports whether it succeeded.
func (cs *Checkpoints) settle(ctx context.Context, r *journal.Record) bool {
	ctx, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()
	log := cs.log.With("request", r.ID, "pod", r.Pod, "snapshot", r.Key.String())
	if err := cs.settleOne(ctx, r); err != nil {
		log.Error("request not settled; it is tried again", "error", err)
		return false
	}
	cs.Changed(r)
	log.Info("settled a request that was left", "stage", r.Stage, "reason", r.Error)
	return true
}

func (cs *Checkpoints) settleOne(ctx context.Context, r *journal.Record) error {
	safe, err := cs.safe(ctx, r)
	switch {
	case err != nil:
		return err
	case safe && toBeStopped(r):
		return cs.settleStop(ctx, r)
	case safe:
		r.Stage = journal.StageSpooled
		return cs.Journal.Put(r)
	}
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
	paused, err := cs.Runtime.Paused(ctx, r.SandboxID)
	if err != nil && !errors.Is(err, cri.ErrNotFound) {
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

// hasEnded reports whether a sandbox has ended. Containerd may learn of that later.
func (cs *Checkpoints) hasEnded(ctx context.Context, sandbox string) (bool, error) {
	pod, err := cs.Runtime.Get(ctx, sandbox)
	if errors.Is(err, cri.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return !pod.Ready || !pod.Alive(), nil
}

// CleanMarkers removes the markers of sandboxes that containerd no longer knows.
func (cs *Checkpoints) CleanMarkers(ctx context.Context) {
	entries, err := os.ReadDir(cs.StoppedDir)
	if err != nil {
		cs.log.Warn("markers unreadable", "error", err)
		return
	}
	for _, e := range entries {
		if _, err := cs.Runtime.Get(ctx, e.Name()); errors.Is(err, cri.ErrNotFound) {
			os.Remove(filepath.Join(cs.StoppedDir, e.Name())) // the next call retries
		}
	}
}
