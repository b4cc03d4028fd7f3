package agent

import (
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
// requests that were cut short. It runs before the local service answers.
func (a *Agent) recover(ctx context.Context) {
	recs, err := a.journal.records(a.log)
	if err != nil {
		a.log.Error("journal unreadable", "error", err)
		return
	}
	for _, r := range recs {
		if r.ended() {
			continue
		}
		log := a.log.With("request", r.ID, "pod", r.Pod, "snapshot", r.Key.String())
		if err := a.recoverOne(ctx, r); err != nil {
			log.Error("request of an earlier agent not settled", "error", err)
			continue
		}
		log.Info("settled a request of an earlier agent", "stage", r.Stage, "reason", r.Error)
	}
	if err := a.journal.prune(recs); err != nil {
		a.log.Warn("journal not pruned", "error", err)
	}
	a.cleanRequests(ctx)
	a.cleanMarkers(ctx)
}

func (a *Agent) recoverOne(ctx context.Context, r *record) error {
	spooled, err := a.spool.Has(ctx, r.Key)
	if err != nil {
		return err
	}
	if spooled && r.Stop && !r.Stopped {
		return a.recoverStop(ctx, r)
	}
	if !spooled {
		if err := a.resumeIfPaused(ctx, r.SandboxID); r.Stage == StagePaused && err != nil && !errors.Is(err, cri.ErrNotFound) {
			return err
		}
		r.Stage, r.Error = StageFailed, "the agent was restarted before the snapshot was complete; the sandbox runs on"
		return a.journal.put(r)
	}
	r.Stage = StageSpooled
	return a.journal.put(r)
}

// recoverStop ends a sandbox whose snapshot is safe if nothing has run in it since, that is, if it
// is still paused.
func (a *Agent) recoverStop(ctx context.Context, r *record) error {
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
	return a.stop(pod, r, newStopwatch())
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
