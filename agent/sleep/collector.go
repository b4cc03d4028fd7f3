package sleep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/lifetime"
	"diapause.dev/agent/snapshots"
	"diapause.dev/storage"
)

// Collector removes the snapshots of sleeps that are over. Its methods may be called concurrently.
type Collector struct {
	snapshots Snapshots
	journal   *journal.Journal
	waker     *Waker
	life      *lifetime.Life
	log       *slog.Logger
}

// Snapshots removes snapshots. *snapshots.Remover implements it.
type Snapshots interface {
	Remove(ctx context.Context, r snapshots.Removal) error
}

// NewCollector returns what removes the snapshots of sleeps that are over. The waker says who sleeps.
func NewCollector(s Snapshots, j *journal.Journal, waker *Waker, life *lifetime.Life, log *slog.Logger) *Collector {
	return &Collector{snapshots: s, journal: j, waker: waker, life: life, log: log}
}

// removeTime bounds the removal of one snapshot.
const removeTime = time.Minute

// Changed must be called with each step of every request. Once the snapshot of a sleep is in its store, it removes
// those of earlier sleeps, in the background.
func (c *Collector) Changed(r *journal.Record) {
	if r.Sleep && r.Stage == journal.StageReplicated {
		newest := r.Clone()
		c.life.Go(func() { c.removeFormer(c.life.Context(), newest) })
	}
}

// removeFormer removes the snapshots of earlier sleeps of the same pod, which are in the same store: the newest one has
// all that the pod is. One that was given a name stays. So does one that is not in its store yet, until the next sleep.
// After a reboot the pod has another sandbox; a pod without a UID is known by its sandbox alone.
func (c *Collector) removeFormer(ctx context.Context, newest *journal.Record) {
	former := c.journal.Where(func(r *journal.Record) bool {
		same := r.SandboxID == newest.SandboxID || r.PodUID != "" && r.PodUID == newest.PodUID
		stored := r.Stage == journal.StageReplicated && r.Store == newest.Store
		return r.Passing && same && stored && r.Created.Before(newest.Created)
	})
	c.remove(ctx, former)
}

// RemoveEarlier removes the snapshots of sleeps that an earlier agent has made, of pods that are awake: they do not say
// what they are for, and serve other pods, too. One that a pod still loads from is left to the next call.
func (c *Collector) RemoveEarlier(ctx context.Context) {
	earlier := c.journal.Where(func(r *journal.Record) bool {
		return r.Passing && r.Purpose == "" && r.Stage == journal.StageReplicated
	})
	if len(earlier) == 0 {
		return
	}
	asleep := c.waker.All()
	c.remove(ctx, slices.DeleteFunc(earlier, func(r *journal.Record) bool {
		_, ok := asleep[r.SandboxID]
		return ok
	}))
}

// remove removes the snapshots of sleeps.
func (c *Collector) remove(ctx context.Context, records []*journal.Record) {
	for _, r := range records {
		ctx, cancel := context.WithTimeout(ctx, removeTime)
		err := c.snapshots.Remove(ctx, snapshots.Removal{ID: snapshots.ID{Key: r.Key}, From: snapshots.FromEverywhere})
		cancel()
		if errors.Is(err, storage.ErrNotFound) {
			err = nil
		}
		if err == nil {
			r = r.Clone()
			r.Passing = false
			err = c.journal.Put(r)
		}
		if err != nil {
			c.log.Warn("the snapshot of a former sleep is not removed; it is retried", "snapshot",
				r.Key.String(), "error", err)
		}
	}
}
