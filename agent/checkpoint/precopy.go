package checkpoint

import (
	"context"
	"os"
	"sync/atomic"

	"diapause.dev/agent/snapshots"
	"diapause.dev/runsc/capture"
	"diapause.dev/storage"
)

// Pre-copy: memory is stored while the sandbox still runs. In the pause a fingerprint is taken of each chunk. What is
// stored already is referred to, and only the rest is copied. A fingerprint costs half of what a copy costs, and takes no
// memory. So the pause of a large sandbox is shorter, and its memory need not fit into the arena.

const (
	// shrinks is the largest share of the bytes of the round before that another round may have to store.
	shrinks = 0.7
	// mostRounds bounds how often memory is gone through to be stored.
	mostRounds = 2
	// reusable is the share of memory that has to be stored already for fingerprints to pay where pre-copy does not.
	reusable = 0.5
)

// precopy stores memory while the sandbox runs, if that pays, and returns how many bytes are expected to be copied in
// the pause. It decides whether the pause takes fingerprints. A sentry that has begun to save by itself is paused
// already, and nothing is done. The snapshot's writer lives as long as life.
func (c *checkpoint) precopy(ctx, life context.Context, m *capture.Mapping, memory *os.File, used int64) (int64, error) {
	if c.o.sentry != nil {
		return used, nil
	}
	large, parent := c.large(used), c.parent(ctx)
	if !large && (parent == nil || !parent.Fingerprinted()) {
		return used, nil
	}
	if err := c.openWriter(life, parent, large); err != nil {
		return 0, err
	}
	defer c.watch.lap("precopy")
	if large {
		c.reuse = true
		return c.rounds(ctx, m, memory, used)
	}
	left, err := c.walk(ctx, m, memory, c.lookFor)
	if c.reuse = float64(left) <= (1-reusable)*float64(used); !c.reuse {
		left = used
	}
	return left, err
}

// large reports whether so much memory is stored before the pause.
func (c *checkpoint) large(memory int64) bool {
	return c.cs.PrecopyFrom > 0 && memory >= c.cs.PrecopyFrom
}

// rounds goes through the memory until little has changed since, or until that does not get less.
func (c *checkpoint) rounds(ctx context.Context, m *capture.Mapping, memory *os.File, used int64) (left int64, err error) {
	before := used
	for range mostRounds {
		c.o.Progress("precopy", 0, before)
		var done atomic.Int64
		if _, err := c.walk(ctx, m, memory, func(raw []byte) (bool, error) {
			stored, err := c.writer.Precopy(raw)
			if stored > 0 {
				c.o.Progress("precopy", done.Add(int64(len(raw))), before)
			}
			return true, err
		}); err != nil {
			return 0, err
		}
		if left, err = c.walk(ctx, m, memory, c.lookFor); err != nil {
			return 0, err
		}
		if left <= c.room.arena/2 || float64(left) > shrinks*float64(before) {
			break
		}
		before = left
	}
	return left, nil
}

// walk goes through the memory, and returns how many bytes f has not found to be stored.
func (c *checkpoint) walk(ctx context.Context, m *capture.Mapping, memory *os.File, f func(raw []byte) (bool, error)) (
	left int64, err error) {
	var sum atomic.Int64
	err = m.Walk(ctx, memory, snapshots.ChunkSize, func(raw []byte) error {
		found, err := f(raw)
		if !found {
			sum.Add(int64(len(raw)))
		}
		return err
	})
	return sum.Load(), err
}

// lookFor reports whether a chunk is stored already.
func (c *checkpoint) lookFor(raw []byte) (found bool, err error) {
	_, found = c.writer.Recognise(raw)
	return found, nil
}

// recogniser looks for chunks in the pause.
type recogniser struct{ *storage.Writer }

// Recognise implements capture.Stored.
func (r recogniser) Recognise(parts [][]byte) (place int64, ok bool) {
	at, ok := r.Writer.Recognise(parts...)
	return int64(at), ok
}
