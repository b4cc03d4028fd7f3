// Package spool writes the snapshot of one sandbox into the spool.
//
// That may begin before the pause: memory of which much is in use is stored while the sandbox runs (precopy.go). Then
// the pause copies what has changed since into the arena, which is prepared for that (warm.go). After the pause all
// that was captured is written, in the order in which a restore reads it. Nothing here pauses a sandbox.
package spool

import (
	"context"
	"log/slog"
	"sync/atomic"

	"diapause.dev/agent/snapshots"
	"diapause.dev/agent/volumes"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
	"diapause.dev/storage"
)

// Config is what a snapshot in the making needs.
type Config struct {
	Stores  *snapshots.Stores
	Lineage *snapshots.Lineage
	Room    Room
	Key     snapshot.Key
	Store   string // in which the snapshot will be: it says how the spool compresses
	Sandbox string
	Scope   snapshot.Scope
	Precopy Precopy
	// Progress is called with the progress of a stage, in bytes, and Lap when a stage has ended.
	Progress func(stage string, done, total int64)
	Lap      func(stage string)
	Logger   *slog.Logger
}

// Room bounds the memory that the checkpoint takes. *room.Room implements it.
type Room interface {
	Arena() int64        // limit of the arena, in bytes
	MostPages() int64    // how many bytes the sandbox's pages may have
	WriterMemory() int64 // what the snapshot's writer may hold
	Grow(n int64) error  // takes n more bytes, or refuses
}

// Snapshot is a snapshot in the making. It belongs to one goroutine.
type Snapshot struct {
	Config
	writer    *storage.Writer // nil: it has not begun
	toHandle  atomic.Int64    // bytes that the writer has to handle in all; 0: that is not known yet
	newStored atomic.Int64    // bytes that it has added to the spool
	from      *snapshot.Key   // the parent; nil: none was found
}

// New returns the snapshot. Nothing is done before it is prepared or written.
func New(c Config) *Snapshot { return &Snapshot{Config: c} }

// begin begins the snapshot in the spool. The writer lives as long as life. It takes fingerprints also if there is no
// parent, if it is told to.
func (s *Snapshot) begin(life context.Context, parent *storage.Manifest, fingerprints bool) error {
	codec, err := s.Stores.Codec(s.Store)
	if err != nil {
		return err
	}
	s.writer, err = s.Stores.Spool().NewWriter(life, s.Key, storage.WriterOptions{
		Codec:        codec,
		Parent:       parent,
		Memory:       s.Room.WriterMemory(),
		Fingerprints: fingerprints,
		Progress: func(raw, stored int64) {
			s.newStored.Store(stored)
			if total := s.toHandle.Load(); total > 0 {
				s.Progress("spool", min(raw, total), total)
			}
		},
	})
	return err
}

// Abort gives up a snapshot that was not committed. It must be called before the arena is closed.
func (s *Snapshot) Abort() {
	if s.writer != nil {
		s.writer.Abort()
	}
}

// parent returns the manifest of the sandbox's last snapshot if this node still has it.
func (s *Snapshot) parent(ctx context.Context) *storage.Manifest {
	k, ok := s.Lineage.Parent(s.Sandbox, s.Scope)
	if !ok {
		return nil
	}
	m, err := s.Stores.Spool().Manifest(ctx, k)
	if err != nil {
		s.Logger.Info("snapshot is stored whole: its parent is not on this node", "parent", k.String(), "reason", err)
		return nil
	}
	s.from = &k
	return m
}

// Write writes the volumes and the image files, in the order in which a restore reads them. The pages are in the arena.
// It returns how many bytes all of it has.
func (s *Snapshot) Write(ctx context.Context, im *capture.Image, v *volumes.Volumes, arena *capture.Arena) (
	total int64, err error,
) {
	if s.writer == nil {
		if err := s.begin(ctx, s.parent(ctx), false); err != nil {
			return 0, err
		}
	}
	total = im.Size() + v.Bytes()
	s.toHandle.Store(max(total, 1))
	if err := v.Write(s.writer); err != nil {
		return 0, err
	}
	for _, f := range im.Small {
		if err := writeWhole(s.writer.File(f.Name), f.Data); err != nil {
			return 0, err
		}
	}
	pages := pageWriter{writer: s.writer, pages: s.writer.File(runsc.PagesFile), arena: arena}
	return total, pages.write(ctx, im.Runs)
}

func writeWhole(f *storage.FileWriter, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), snapshots.ChunkSize)
		if err := f.Chunk(data[:n:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// Stored returns how many bytes the snapshot has added to the spool so far.
func (s *Snapshot) Stored() int64 { return s.newStored.Load() }

// Commit ends the snapshot. It is then restorable on this node, whatever happens to the agent or the machine.
func (s *Snapshot) Commit(ctx context.Context, meta snapshot.Meta) error {
	meta.Parent = s.from
	_, err := s.writer.Commit(ctx, meta)
	return err
}
