// Package workingset keeps what restored sandboxes have waited for: the working set of a snapshot. It lies in the store
// beside the snapshot, and the next restore loads it first.
package workingset

import (
	"context"
	"errors"
	"slices"
	"sync"

	"diapause.dev/agent/snapshots"
	"diapause.dev/storage"
)

// Max bounds the chunks of a working set: half a GiB of memory.
const Max = 512 << 20 / snapshots.ChunkSize

// Asked is what a sandbox has waited for, in the order in which it asked. Its methods may be called concurrently. The
// zero value holds nothing.
type Asked struct {
	mu   sync.Mutex
	seen map[storage.ChunkRef]bool
	list []storage.ChunkRef
}

// Add notes that a range of a file was asked for, if that is not too much.
func (a *Asked) Add(r *storage.Reader, file string, off, n int64, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = make(map[storage.ChunkRef]bool)
	}
	if len(a.list) >= most {
		return
	}
	for _, c := range r.Locate(file, off, n) {
		if !a.seen[c] {
			a.seen[c] = true
			a.list = append(a.list, c)
		}
	}
}

// Chunks returns what was asked for.
func (a *Asked) Chunks() []storage.ChunkRef {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.list[:min(len(a.list), Max)]
}

// Distinct returns chunks in the same order, each once.
func Distinct(chunks []storage.ChunkRef) []storage.ChunkRef {
	seen := make(map[storage.ChunkRef]bool, len(chunks))
	return slices.DeleteFunc(chunks, func(c storage.ChunkRef) bool {
		again := seen[c]
		seen[c] = true
		return again
	})
}

// Put writes a working set if the store has the snapshot, and a working set that lacks some of the chunks, or
// none.
func Put(ctx context.Context, s *snapshots.Reader, chunks []storage.ChunkRef) error {
	m, err := s.Far.Manifest(ctx, s.Manifest.Meta.Key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil || m.Digest != s.Manifest.Digest { // another snapshot of that name
		return err
	}
	known, err := s.Far.WorkingSet(ctx, s.Manifest)
	if err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	if merged, changed := merge(known, chunks); changed {
		return s.Far.PutWorkingSet(ctx, s.Manifest, merged)
	}
	return nil
}

// merge returns a working set of what a restore has waited for now and, behind it, what earlier ones have. It is no
// longer than the known one, or than twice what this restore has waited for. So chunks that nobody waits for any longer
// go in the end. A sandbox that loads fast hardly waits, so a restore that has waited for little removes nothing else.
// changed is false if everything was known.
func merge(known, now []storage.ChunkRef) (merged []storage.ChunkRef, changed bool) {
	before, later := make(map[storage.ChunkRef]bool, len(known)), make(map[storage.ChunkRef]bool, len(now))
	for _, c := range known {
		before[c] = true
	}
	for _, c := range now {
		later[c] = true
		changed = changed || !before[c]
	}
	merged = append(merged, now...)
	for _, c := range known {
		if !later[c] {
			merged = append(merged, c)
		}
	}
	return merged[:min(len(merged), max(len(known), 2*len(now)), Max)], changed
}
