package restore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"diapause.dev/agent/snapshots"
	"diapause.dev/runsc"
	"diapause.dev/storage"
)

// maxAsked bounds the chunks of a working set: half a GiB of memory.
const maxAsked = 512 << 20 / snapshots.ChunkSize

// maxGuided is how many chunks a working set may grow to by restores of sandboxes that know it: 32 MiB. They load all
// of it before anything else.
const maxGuided = 32 << 20 / snapshots.ChunkSize

// maxExpected is how many chunks of a working set a sandbox is told: what a reader fetches or decodes beforehand, see
// storage.Reader.PrefetchChunks. With more, it would ask for what is not there yet, and wait for that in small reads.
const maxExpected = 48 << 20 / snapshots.ChunkSize

// asked is what a sandbox has waited for, in the order in which it asked.
type asked struct {
	mu   sync.Mutex
	seen map[storage.ChunkRef]bool
	list []storage.ChunkRef
}

// add notes that a range of a file was asked for, if that is not too much.
func (a *asked) add(r *storage.Reader, file string, off, n int64, most int) {
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

// chunks returns what was asked for.
func (a *asked) chunks() []storage.ChunkRef {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.list[:min(len(a.list), maxAsked)]
}

// Time limits for background work on working sets.
const (
	prefetchTime = 30 * time.Second
	recordTime   = 30 * time.Second
)

// warm prefetches for a sandbox, once.
func (rs *Restores) warm(ctx context.Context, s *snapshots.Reader) {
	s.PrefetchOnce(func() { rs.prefetch(ctx, s) })
}

// prefetch fetches what a sandbox will ask for first, while the sandbox is still being created. It fetches all files
// except the memory, the image's before the volumes. At the same time it fetches the working set of earlier restores
// from this snapshot, or else both ends of the memory. Of a snapshot on this node it only decodes the working set,
// once for all sandboxes that are restored at the same time.
func (rs *Restores) prefetch(ctx context.Context, s *snapshots.Reader) {
	fetch := func(what string, chunks func(context.Context, *snapshots.Reader) []storage.ChunkRef) {
		ctx, cancel := context.WithTimeout(rs.Life.Context(), prefetchTime)
		defer cancel()
		started := time.Now()
		list := chunks(ctx, s)
		n, err := s.PrefetchChunks(ctx, list)
		if err != nil {
			rs.log.Warn("not prefetched; the sandbox waits for each of its reads", "snapshot", s.Manifest.Meta.Key.String(),
				"error", err)
			return
		}
		rs.log.Debug("prefetched", "snapshot", s.Manifest.Meta.Key.String(), "what", what, "chunks", n, "of", len(list),
			"took", time.Since(started))
	}
	if s.OnNode {
		rs.Life.Go(func() { fetch("memory", rs.known) })
		return
	}
	s.Guess(ctx)
	rs.Life.Go(func() { s.Fetch(func() { fetch("files", files) }) })
	rs.Life.Go(func() { s.Fetch(func() { fetch("memory", rs.first) }) })
}

// files returns the chunks of all files except the memory: those of the image first, then those of any volumes.
func files(_ context.Context, s *snapshots.Reader) (chunks []storage.ChunkRef) {
	var volumes []storage.ChunkRef
	for _, f := range s.Manifest.Files {
		switch {
		case isVolume(f.Name):
			volumes = append(volumes, s.Locate(f.Name, 0, f.Size)...)
		case f.Name != runsc.PagesFile:
			chunks = append(chunks, s.Locate(f.Name, 0, f.Size)...)
		}
	}
	return append(chunks, volumes...)
}

// known returns the working set, or nothing if there is none. It notes that sandboxes will wait for that.
func (rs *Restores) known(ctx context.Context, s *snapshots.Reader) []storage.ChunkRef {
	chunks, err := rs.Readers.WorkingSet(ctx, s)
	if err != nil { // each chunk is decoded when it is asked for
		rs.log.Debug("no working set", "snapshot", s.Manifest.Meta.Key.String(), "error", err)
	}
	chunks = chunks[:min(len(chunks), maxAsked)]
	s.Expect(chunks[:min(len(chunks), maxExpected)])
	return chunks
}

// headBytes is how much of the beginning of a memory file is fetched before anything else. The sandbox loads it ahead
// of need while it starts, and asks for what it waits for whenever such a read has ended: see herePause.
const headBytes = 3 << 20

// guessBytes is how much is fetched at each end of a memory file without a working set. A program's memory is given out
// from the end of the file on, what its start needs first, and gVisor's own from the beginning (allocDir in
// pkg/sentry/mm).
const guessBytes = 8 << 20

// first returns the head of the memory, and the working set. Without a working set it returns chunks from the end of
// the memory, and from its beginning.
func (rs *Restores) first(ctx context.Context, s *snapshots.Reader) []storage.ChunkRef {
	f, _ := s.Manifest.File(runsc.PagesFile)
	if f == nil {
		return nil
	}
	chunks := s.Locate(f.Name, 0, min(f.Size, headBytes))
	if set := rs.known(ctx, s); set != nil {
		return distinct(append(chunks, set...))
	}
	end := max(0, f.Size-guessBytes)
	chunks = append(chunks, s.Locate(f.Name, end, f.Size-end)...)
	return distinct(append(chunks, s.Locate(f.Name, 0, min(guessBytes, end))...))
}

// distinct returns chunks in the same order, each once.
func distinct(chunks []storage.ChunkRef) []storage.ChunkRef {
	seen := make(map[storage.ChunkRef]bool, len(chunks))
	return slices.DeleteFunc(chunks, func(c storage.ChunkRef) bool {
		again := seen[c]
		seen[c] = true
		return again
	})
}

// record adds what a restore has waited for to the working set in the store, beside the snapshot, for the next restore.
// This agent must have seen the restore through.
func (rs *Restores) record(s *snapshots.Reader, chunks []storage.ChunkRef) {
	if s.Far == nil || len(chunks) == 0 {
		return
	}
	rs.Life.Go(func() {
		ctx, cancel := context.WithTimeout(rs.Life.Context(), recordTime)
		defer cancel()
		if err := putWorkingSet(ctx, s, chunks); err != nil {
			rs.log.Warn("working set not recorded", "snapshot", s.Manifest.Meta.Key.String(), "error", err)
		}
	})
}

// putWorkingSet writes a working set if the store has the snapshot, and a working set that lacks some of the chunks, or
// none.
func putWorkingSet(ctx context.Context, s *snapshots.Reader, chunks []storage.ChunkRef) error {
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
	return merged[:min(len(merged), max(len(known), 2*len(now)), maxAsked)], changed
}
