package agent

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"diapause.dev/cri"
	"diapause.dev/storage"
)

// recover pays what an earlier agent owed: it resumes or ends what that one had paused, and ends
// requests that were cut short. It runs before the local service answers. What cannot be settled
// now is tried again by settleLoop.
func (a *Agent) recover(ctx context.Context) {
	recs, err := a.journal.records(a.log)
	if err != nil {
		a.log.Error("journal unreadable", "error", err)
		return
	}
	for _, r := range recs {
		if !r.ended() && !a.settle(ctx, r) {
			a.debts.add(r)
		}
	}
	if err := a.journal.prune(recs); err != nil {
		a.log.Warn("journal not pruned", "error", err)
	}
	a.cleanRequests(ctx)
	a.cleanMarkers(ctx)
}

// settle does what a request that is over still asks for, and reports whether that is done.
func (a *Agent) settle(ctx context.Context, r *record) bool {
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

func (a *Agent) settleOne(ctx context.Context, r *record) error {
	safe, err := a.safe(ctx, r)
	switch {
	case err != nil:
		return err
	case safe && r.Stop && !r.Stopped:
		return a.settleStop(ctx, r)
	case safe:
		r.Stage = StageSpooled
		return a.journal.put(r)
	}
	if r.Stage == StagePaused {
		if err := a.resumeIfPaused(ctx, r.SandboxID); err != nil {
			return err
		}
	}
	r.Stage, r.Error = StageFailed, cmp.Or(r.Error, "the agent ended before the snapshot was complete")
	return a.journal.put(r)
}

// safe reports whether the snapshot of a request, and not another one of that name, is in the
// spool.
func (a *Agent) safe(ctx context.Context, r *record) (bool, error) {
	m, err := a.spool.Manifest(ctx, r.Key)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil && m.Meta.UID == r.UID, err
}

// settleStop ends a sandbox whose snapshot is safe if nothing has run in it since, that is, if it
// is still paused.
func (a *Agent) settleStop(ctx context.Context, r *record) error {
	paused, err := a.cri.Paused(ctx, r.SandboxID)
	if err != nil && !errors.Is(err, cri.ErrNotFound) {
		return err
	}
	r.Stage = StageSpooled
	if !paused {
		return a.journal.put(r)
	}
	pod, err := a.cri.Get(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	if err := a.stop(pod, r, newStopwatch()); err != nil {
		return err
	}
	return a.journal.put(r)
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
