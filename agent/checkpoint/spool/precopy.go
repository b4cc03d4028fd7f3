package spool

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"diapause.dev/agent/pace"
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

// Precopy says whether memory is stored before the pause, and how.
type Precopy struct {
	From       int64         // bytes of memory from which on it is stored; 0: never
	Time       time.Duration // how long that gives way to what else runs; 0: not at all
	Pace       *pace.Pace    // by which it does
	Saving     bool          // the sentry has begun to save by itself
	Stop       bool          // the sandbox is to be stopped
	HandedOver bool          // the sandbox is to be handed over
}

// Large reports whether so much memory is stored before the pause. A sandbox that is to be handed over is paused until
// all of it is stored, so for it any amount is large.
func (p *Precopy) Large(memory int64) bool {
	return p.From > 0 && (memory >= p.From || p.HandedOver)
}

// pacing returns what pre-copy gives way by, or nil if it must not: the sandbox does not run on afterwards. After Time
// it gives way no longer.
func (p *Precopy) pacing() capture.Pace {
	if p.Stop || p.HandedOver || p.Time <= 0 {
		return nil
	}
	end := time.Now().Add(p.Time)
	return func(ctx context.Context, took time.Duration) error {
		if time.Now().After(end) {
			return nil
		}
		return p.Pace.Wait(ctx, took)
	}
}

// precopy stores memory while the sandbox runs, if that pays, and returns how many bytes are expected to be copied in
// the pause. The pause looks for what is stored, unless that is nil. A sentry that has begun to save by itself is
// paused already, and nothing is done. Nor is it if the agent has no memory for it: a sandbox can make its memory file
// as long as it likes. The snapshot's writer lives as long as life.
func (s *Snapshot) precopy(ctx, life context.Context, m *capture.Mapping, memory *os.File, used int64) (
	left int64, stored *capture.Baseline, err error,
) {
	if s.Precopy.Saving {
		return used, nil, nil
	}
	large, parent := s.Precopy.Large(used), s.parent(ctx)
	if !large && (parent == nil || !parent.Fingerprinted()) {
		return used, nil, nil
	}
	if err := s.Room.Grow(m.Size() / snapshots.ChunkSize * perWindow); err != nil {
		s.Logger.Info("all memory is copied in the pause", "reason", err)
		return used, nil, nil
	}
	base, err := capture.NewBaseline(m, snapshots.ChunkSize)
	if err != nil {
		return 0, nil, err
	}
	if err := s.begin(life, parent, large); err != nil {
		return 0, nil, err
	}
	defer s.Lap("precopy")
	if large {
		left, err = s.rounds(ctx, base, memory, used)
		return left, base, err
	}
	left, err = base.Round(ctx, memory, nil, ahead{s.writer}.recognise)
	if float64(left) > (1-reusable)*float64(used) {
		return used, nil, err
	}
	return left, base, err
}

// rounds stores memory. It gives way to what else runs. If much has changed meanwhile, that is stored in a second
// round, which gives way to nothing: it has to be faster than the sandbox. So no more than twice the memory is written,
// which room.Room.TakeDisk counts on.
func (s *Snapshot) rounds(ctx context.Context, base *capture.Baseline, memory *os.File, used int64) (
	left int64, err error,
) {
	var done atomic.Int64
	store := ahead{s.writer}
	s.Progress("precopy", 0, used)
	if _, err := base.Round(ctx, memory, s.Precopy.pacing(), func(raw []byte, _ int) (int64, bool, error) {
		s.Progress("precopy", min(done.Add(int64(len(raw))), used), used)
		return store.whole(raw)
	}); err != nil {
		return 0, err
	}
	left, err = base.Round(ctx, memory, nil, notStored)
	if err == nil && left > min(int64(copiedShare*float64(used)), s.Room.Arena()/2) {
		if _, err = base.Round(ctx, memory, nil, store.changed); err == nil {
			left, err = base.Round(ctx, memory, nil, notStored)
		}
	}
	if err != nil {
		return 0, err
	}
	return left, s.writer.Flush()
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
