package checkpoint

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"diapause.dev/agent/snapshots"
	"diapause.dev/runsc/capture"
	"diapause.dev/storage"
)

// Pre-copy: memory is stored while the sandbox still runs. In the pause a fingerprint is taken of each page, and only
// pages that have changed since are copied. A fingerprint costs half of what a copy costs, and takes no memory. So the
// pause of a large sandbox is shorter, and its memory need not fit into the arena.

const (
	// changedShare is the share of a chunk that must have changed for the second round to store it anew. Single pages are
	// copied in the pause instead.
	changedShare = 0.5
	// copiedShare is the share of memory that may be left to be copied in the pause without a second round.
	copiedShare = 0.25
	// reusable is the share of memory that has to be stored already for fingerprints to pay where pre-copy does not.
	reusable = 0.5
	// perWindow is what is kept for each window of the memory file that a chunk may be of, in bytes: fingerprints, where
	// the chunk is stored, and the pages of the tables that map it.
	perWindow = 512
)

// precopy stores memory while the sandbox runs, if that pays, and returns how many bytes are expected to be copied in
// the pause. A sentry that has begun to save by itself is paused already, and nothing is done. Nor is it if the agent
// has no memory for it: a sandbox can make its memory file as long as it likes. The snapshot's writer lives as long as
// life.
func (c *checkpoint) precopy(ctx, life context.Context, m *capture.Mapping, memory *os.File, used int64) (
	left int64, err error,
) {
	if c.o.sentry != nil {
		return used, nil
	}
	large, parent := c.large(used), c.parent(ctx)
	if !large && (parent == nil || !parent.Fingerprinted()) {
		return used, nil
	}
	if err := c.room.Grow(m.Size() / snapshots.ChunkSize * perWindow); err != nil {
		c.log.Info("all memory is copied in the pause", "reason", err)
		return used, nil
	}
	base, err := capture.NewBaseline(m, snapshots.ChunkSize)
	if err != nil {
		return 0, err
	}
	if err := c.openWriter(life, parent, large); err != nil {
		return 0, err
	}
	defer c.watch.lap("precopy")
	if large {
		c.baseline = base
		return c.rounds(ctx, base, memory, used)
	}
	left, err = base.Round(ctx, memory, nil, ahead{c.writer}.recognise)
	if float64(left) > (1-reusable)*float64(used) {
		return used, err
	}
	c.baseline = base
	return left, err
}

// large reports whether so much memory is stored before the pause. A sandbox that is to be handed over is paused until
// all of it is stored, so for it any amount is large.
func (c *checkpoint) large(memory int64) bool {
	return c.cs.PrecopyFrom > 0 && (memory >= c.cs.PrecopyFrom || c.o.Handover != nil)
}

// rounds stores memory. It gives way to what else runs. If much has changed meanwhile, that is stored in a second
// round, which gives way to nothing: it has to be faster than the sandbox. So no more than twice the memory is written,
// which room.Room.TakeDisk counts on.
func (c *checkpoint) rounds(ctx context.Context, base *capture.Baseline, memory *os.File, used int64) (
	left int64, err error,
) {
	var done atomic.Int64
	store := ahead{c.writer}
	c.o.Progress("precopy", 0, used)
	if _, err := base.Round(ctx, memory, c.pace(), func(raw []byte, _ int) (int64, bool, error) {
		c.o.Progress("precopy", min(done.Add(int64(len(raw))), used), used)
		return store.whole(raw)
	}); err != nil {
		return 0, err
	}
	left, err = base.Round(ctx, memory, nil, notStored)
	if err == nil && left > min(int64(copiedShare*float64(used)), c.room.Arena()/2) {
		if _, err = base.Round(ctx, memory, nil, store.changed); err == nil {
			left, err = base.Round(ctx, memory, nil, notStored)
		}
	}
	if err != nil {
		return 0, err
	}
	return left, c.writer.Flush()
}

// pace returns what pre-copy gives way by, or nil if it must not: the sandbox does not run on afterwards. After
// PrecopyTime it gives way no longer.
func (c *checkpoint) pace() capture.Pace {
	if c.o.Stop || c.o.Handover != nil || c.cs.PrecopyTime <= 0 {
		return nil
	}
	end := time.Now().Add(c.cs.PrecopyTime)
	return func(ctx context.Context, took time.Duration) error {
		if time.Now().After(end) {
			return nil
		}
		return c.cs.Pace.Wait(ctx, took)
	}
}

// ahead stores chunks of memory before the pause. Its methods are what a round of a capture.Baseline calls for a chunk.
type ahead struct{ writer *storage.Writer }

// whole stores a chunk.
func (a ahead) whole(raw []byte) (place int64, ok bool, err error) {
	at, err := a.writer.Precopy(raw)
	return int64(at), err == nil, err
}

// changed stores a chunk if much of it has changed.
func (a ahead) changed(raw []byte, changed int) (place int64, ok bool, err error) {
	if float64(changed) < changedShare*float64(len(raw)) {
		return 0, false, nil
	}
	return a.whole(raw)
}

// recognise looks for a chunk in the parent.
func (a ahead) recognise(raw []byte, _ int) (place int64, ok bool, err error) {
	at, ok := a.writer.Recognise(raw)
	return int64(at), ok, nil
}

// notStored stores nothing: a round with it counts what has changed.
func notStored([]byte, int) (place int64, ok bool, err error) { return 0, false, nil }
