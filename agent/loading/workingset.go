package loading

import (
	"context"
	"time"

	"diapause.dev/agent/snapshots"
	"diapause.dev/agent/workingset"
	"diapause.dev/runsc"
	"diapause.dev/storage"
)

// maxGuided is how many chunks a working set may grow to by restores of sandboxes that know it: 32 MiB. They load all
// of it before anything else.
const maxGuided = 32 << 20 / snapshots.ChunkSize

// maxExpected is how many chunks of a working set a sandbox is told: what a reader fetches or decodes beforehand, see
// storage.Reader.PrefetchChunks. With more, it would ask for what is not there yet, and wait for that in small reads.
const maxExpected = 48 << 20 / snapshots.ChunkSize

// Time limits for background work on working sets.
const (
	prefetchTime = 30 * time.Second
	recordTime   = 30 * time.Second
)

// Warm prefetches for the sandboxes that are restored from the snapshot, once. If the image was released, it does
// nothing.
func (i *Image) Warm(ctx context.Context) {
	if s := i.current(); s != nil {
		s.PrefetchOnce(func() { i.loader.prefetch(ctx, s) })
	}
}

// Expect reads the working set, if that was not done yet: the sandbox asks for it at once.
func (i *Image) Expect(ctx context.Context) {
	if s := i.current(); s != nil && s.Expected() == nil {
		i.loader.known(ctx, s)
	}
}

// prefetch fetches what a sandbox will ask for first, while the sandbox is still being created. It fetches all files
// except the memory, the image's before the volumes. At the same time it fetches the working set of earlier restores
// from this snapshot, or else both ends of the memory. Of a snapshot on this node it only decodes the working set,
// once for all sandboxes that are restored at the same time.
func (l *Loader) prefetch(ctx context.Context, s *snapshots.Reader) {
	fetch := func(what string, chunks func(context.Context, *snapshots.Reader) []storage.ChunkRef) {
		ctx, cancel := context.WithTimeout(l.Life.Context(), prefetchTime)
		defer cancel()
		started := time.Now()
		list := chunks(ctx, s)
		n, err := s.PrefetchChunks(ctx, list)
		if err != nil {
			l.Logger.Warn("not prefetched; the sandbox waits for each of its reads", "snapshot", s.Manifest.Meta.Key.String(),
				"error", err)
			return
		}
		l.Logger.Debug("prefetched", "snapshot", s.Manifest.Meta.Key.String(), "what", what, "chunks", n, "of", len(list),
			"took", time.Since(started))
	}
	if s.OnNode {
		l.Life.Go(func() { fetch("memory", l.known) })
		return
	}
	s.Guess(ctx)
	l.Life.Go(func() { s.Fetch(func() { fetch("files", files) }) })
	l.Life.Go(func() { s.Fetch(func() { fetch("memory", l.first) }) })
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
func (l *Loader) known(ctx context.Context, s *snapshots.Reader) []storage.ChunkRef {
	chunks, err := l.Readers.WorkingSet(ctx, s)
	if err != nil { // each chunk is decoded when it is asked for
		l.Logger.Debug("no working set", "snapshot", s.Manifest.Meta.Key.String(), "error", err)
	}
	chunks = chunks[:min(len(chunks), workingset.Max)]
	s.Expect(chunks[:min(len(chunks), maxExpected)])
	return chunks
}

// headBytes is how much of the beginning of a memory file is fetched before anything else. The sandbox loads it ahead
// of need while it starts, and asks for what it waits for whenever such a read has ended: see policy.herePause.
const headBytes = 3 << 20

// guessBytes is how much is fetched at each end of a memory file without a working set. A program's memory is given out
// from the end of the file on, what its start needs first, and gVisor's own from the beginning (allocDir in
// pkg/sentry/mm).
const guessBytes = 8 << 20

// first returns the head of the memory, and the working set. Without a working set it returns chunks from the end of
// the memory, and from its beginning.
func (l *Loader) first(ctx context.Context, s *snapshots.Reader) []storage.ChunkRef {
	f, _ := s.Manifest.File(runsc.PagesFile)
	if f == nil {
		return nil
	}
	chunks := s.Locate(f.Name, 0, min(f.Size, headBytes))
	if set := l.known(ctx, s); set != nil {
		return workingset.Distinct(append(chunks, set...))
	}
	end := max(0, f.Size-guessBytes)
	chunks = append(chunks, s.Locate(f.Name, end, f.Size-end)...)
	return workingset.Distinct(append(chunks, s.Locate(f.Name, 0, min(guessBytes, end))...))
}

// Record adds what the sandbox has waited for to the working set in the store, beside the snapshot, for the next
// restore. This agent must have seen the restore through.
func (i *Image) Record() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reader != nil {
		i.loader.record(i.reader, i.asked.Chunks())
	}
}

// record adds chunks to the working set of a snapshot.
func (l *Loader) record(s *snapshots.Reader, chunks []storage.ChunkRef) {
	if s.Far == nil || len(chunks) == 0 {
		return
	}
	l.Life.Go(func() {
		ctx, cancel := context.WithTimeout(l.Life.Context(), recordTime)
		defer cancel()
		if err := workingset.Put(ctx, s, chunks); err != nil {
			l.Logger.Warn("working set not recorded", "snapshot", s.Manifest.Meta.Key.String(), "error", err)
		}
	})
}
