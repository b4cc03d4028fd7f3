package spool

import (
	"context"
	"fmt"

	"diapause.dev/runsc/capture"
	"diapause.dev/storage"
)

// patchedAtOnce bounds how many runs are read back at a time, to be patched.
const patchedAtOnce = 32

// pageWriter writes the pages of a capture to a snapshot. It belongs to one goroutine.
type pageWriter struct {
	writer  *storage.Writer     // of the snapshot
	pages   *storage.FileWriter // of the file with the pages
	arena   *capture.Arena      // what was captured
	patched []byte              // what writeRun works on
}

// write adds the pages of a capture to the snapshot.
func (p *pageWriter) write(ctx context.Context, runs []capture.Run) error {
	if err := p.pages.Expect(len(runs)); err != nil {
		return err
	}
	for len(runs) > 0 {
		n, places := p.nextRuns(runs)
		stored, err := p.readBack(ctx, places)
		if err != nil {
			return err
		}
		for _, run := range runs[:n] {
			if stored, err = p.writeRun(run, stored); err != nil {
				return err
			}
		}
		runs = runs[n:]
	}
	return nil
}

// nextRuns returns how many of the runs are written next, and the places of those chunks among them that are patched.
func (p *pageWriter) nextRuns(runs []capture.Run) (n int, patched []storage.Place) {
	for n = range runs {
		if place, whole, ok := p.arena.Stored(runs[n]); ok && !whole {
			if patched = append(patched, storage.Place(place)); len(patched) == patchedAtOnce {
				break
			}
		}
	}
	return n + 1, patched
}

// readBack returns the bytes of the chunks at some places, one after the other.
func (p *pageWriter) readBack(ctx context.Context, places []storage.Place) ([]byte, error) {
	if len(places) == 0 {
		return nil, nil
	}
	r, err := p.writer.Reader(places)
	if err != nil {
		return nil, err
	}
	stored := make([]byte, r.FileSize(storage.AheadFile))
	return stored, r.ReadAt(ctx, storage.AheadFile, 0, [][]byte{stored})
}

// writeRun adds one run. stored begins with the chunk that it is patched from, if it is; writeRun returns the rest.
func (p *pageWriter) writeRun(run capture.Run, stored []byte) ([]byte, error) {
	place, whole, ok := p.arena.Stored(run)
	switch {
	case whole:
		return stored, p.pages.Known(storage.Place(place))
	case ok:
		n := p.arena.StoredLen(run)
		if n > int64(len(stored)) {
			return nil, fmt.Errorf("%d bytes of a stored chunk are missing", n-int64(len(stored)))
		}
		raw, err := p.arena.Patch(p.patched[:0], stored[:n], run)
		if err != nil {
			return nil, err
		}
		p.patched = raw
		return stored[n:], p.pages.Copy(raw)
	}
	raw, lasting, err := p.arena.Copied(run)
	if err != nil {
		return nil, err
	}
	if lasting {
		return stored, p.pages.Chunk(raw)
	}
	return stored, p.pages.Copy(raw)
}
