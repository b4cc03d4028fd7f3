package agent

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/cri"
	"diapause.dev/runsc/lease"
	"diapause.dev/storage"
)

// recover pays what an earlier agent owed: it resumes or ends what that one had paused, and ends
// requests that were cut short. It runs before the local service answers. What cannot be settled
// now is tried again by settleLoop.
func (a *Agent) recover(ctx context.Context) {
	for _, r := range a.journal.Where(func(r *journal.Record) bool { return !r.Ended() }) {
		if !a.settle(ctx, r) {
			a.unsettled.Add(r)
		}
	}
	a.resumeLost(ctx)
	a.cleanRequests(ctx)
	a.cleanMarkers(ctx)
}

// settle does what a request that is over still asks for, and reports whether that is done.
func (a *Agent) settle(ctx context.Context, r *journal.Record) bool {
	ctx, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()
	log := a.log.With("request", r.ID, "pod", r.Pod, "snapshot", r.Key.String())
	if err := a.settleOne(ctx, r); err != nil {
		log.Error("request not settled; it is tried again", "error", err)
		return false
	}
	a.changed(r)
	log.Info("settled a request that was left", "stage", r.Stage, "reason", r.Error)
	return true
}

func (a *Agent) settleOne(ctx context.Context, r *journal.Record) error {
	safe, err := a.safe(ctx, r)
	switch {
	case err != nil:
		return err
	case safe && r.Stop && !r.Stopped:
		return a.settleStop(ctx, r)
	case safe:
		r.Stage = journal.StageSpooled
		return a.journal.Put(r)
	}
	if r.Stage == journal.StagePaused || r.Stage == journal.StageSpooled && r.Stop && !r.Stopped {
		if err := a.unpause(ctx, r.SandboxID, r.ID); err != nil {
			return err
		}
	}
	r.Stage, r.Error = journal.StageFailed, cmp.Or(r.Error, "the agent ended before the snapshot was complete")
	return a.journal.Put(r)
}

// safe reports whether the snapshot of a request, and not another one of that name, is in the
// spool. One whose manifest is damaged is not.
func (a *Agent) safe(ctx context.Context, r *journal.Record) (bool, error) {
	if !r.Named() {
		return false, nil
	}
	m, err := a.spool.Manifest(ctx, r.Key)
	switch {
	case errors.Is(err, storage.ErrCorrupt):
		r.Error = cmp.Or(r.Error, err.Error())
		return false, nil
	case errors.Is(err, storage.ErrNotFound):
		return false, nil
	}
	return err == nil && m.Meta.UID == r.UID, err
}

// settleStop ends a sandbox whose snapshot is safe if nothing has run in it since, that is, if it
// is still paused.
func (a *Agent) settleStop(ctx context.Context, r *journal.Record) error {
	paused, err := a.cri.Paused(ctx, r.SandboxID)
	if err != nil && !errors.Is(err, cri.ErrNotFound) {
		return err
	}
	r.Stage = journal.StageSpooled
	if !paused {
		if err := a.noteEnd(ctx, r); err != nil {
			return err
		}
		return a.journal.Put(r)
	}
	pod, err := a.cri.Get(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	err = a.stop(pod, r, newStopwatch(), a.killPaused(r))
	if errors.Is(err, lease.ErrRanOut) {
		// It has run, or has ended meanwhile, or an agent has paused it that knew no leases.
		if err = a.resumeIfPaused(ctx, r.SandboxID); err == nil {
			err = a.noteEnd(ctx, r)
		}
	}
	if err != nil {
		return err
	}
	return a.journal.Put(r)
}

// noteEnd notes what became of a sandbox that was to be stopped and is not paused.
func (a *Agent) noteEnd(ctx context.Context, r *journal.Record) error {
	pod, err := a.cri.Get(ctx, r.SandboxID)
	switch {
	case errors.Is(err, cri.ErrNotFound), err == nil && !(pod.Ready && pod.Alive()): // containerd hears of its end later
		r.Stopped = true
	case err != nil:
		return err
	default:
		r.RunsOn = cmp.Or(r.RunsOn, "the agent ended before the sandbox was stopped")
	}
	return nil
}

// requestGrace is how long a request's directory is kept in any case: containerd tells of a sandbox
// only once it has started.
const requestGrace = 10 * time.Minute

// cleanRequests removes directories of requests that nobody waits for any more. A restore is kept
// as long as its sandbox exists: its sidecar may come back.
func (a *Agent) cleanRequests(ctx context.Context) {
	entries, err := os.ReadDir(a.cfg.RequestDir)
	if err != nil {
		a.log.Warn("request directories unreadable", "error", err)
		return
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || time.Since(fi.ModTime()) < requestGrace || a.restores.wanted(ctx, e.Name()) {
			continue
		}
		a.restores.abandon(e.Name())
		if err := os.RemoveAll(filepath.Join(a.cfg.RequestDir, e.Name())); err != nil {
			a.log.Warn("request directory not removed", "request", e.Name(), "error", err)
		}
	}
}

// cleanMarkers removes markers of sandboxes that containerd knows no more.
func (a *Agent) cleanMarkers(ctx context.Context) {
	entries, err := os.ReadDir(a.cfg.StoppedDir)
	if err != nil {
		a.log.Warn("markers unreadable", "error", err)
		return
	}
	for _, e := range entries {
		if _, err := a.cri.Get(ctx, e.Name()); errors.Is(err, cri.ErrNotFound) {
			os.Remove(filepath.Join(a.cfg.StoppedDir, e.Name())) // tried again next time
		}
	}
}

// spoolKeys returns the snapshots in the spool.
func (a *Agent) spoolKeys(ctx context.Context) (keys []storage.Key, err error) {
	err = a.spool.List(ctx, "", func(e storage.Entry) error {
		if !strings.HasPrefix(e.Key.Name, ".") {
			keys = append(keys, e.Key)
		}
		return nil
	})
	return keys, err
}
