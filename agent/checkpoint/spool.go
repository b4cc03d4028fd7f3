package checkpoint

import (
	"context"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
	"diapause.dev/storage"
)

// openWriter begins the snapshot in the spool, unless it has begun. The writer lives as long as life. It takes
// fingerprints also if there is no parent, if it is told to.
func (c *checkpoint) openWriter(life context.Context, parent *storage.Manifest, fingerprints bool) error {
	codec, err := c.cs.Stores.Codec(c.rec.Store)
	if err != nil {
		return err
	}
	c.writer, err = c.cs.Stores.Spool().NewWriter(life, c.rec.Key, storage.WriterOptions{
		Codec:        codec,
		Parent:       parent,
		Memory:       c.room.WriterMemory(),
		Fingerprints: fingerprints,
		Progress: func(raw, stored int64) {
			c.newStored.Store(stored)
			if total := c.toHandle.Load(); total > 0 {
				c.o.Progress("spool", min(raw, total), total)
			}
		},
	})
	return err
}

// closeWriter gives up a snapshot that was not committed. It must be called before the arena is closed.
func (c *checkpoint) closeWriter() {
	if c.writer != nil {
		c.writer.Abort()
	}
}

// toSpool compresses and stores the captured image. When it returns without an error, the snapshot is restorable on
// this node, whatever happens to the agent or the machine.
func (c *checkpoint) toSpool(ctx context.Context, im *capture.Image) error {
	if c.writer == nil {
		if err := c.openWriter(ctx, c.parent(ctx), false); err != nil {
			return err
		}
	}
	total := im.Size() + c.volumes.inside.Bytes()
	c.toHandle.Store(max(total, 1))
	if err := c.write(ctx, c.writer, im); err != nil {
		return err
	}
	c.meta.Created = time.Now()
	c.meta.Overflow = c.arena.Overflow()
	c.meta.Memory = im.Memory
	c.meta.Timeline = c.watch.stages
	c.meta.Volumes = c.volumes.noted
	if _, err := c.writer.Commit(ctx, c.meta); err != nil {
		return err
	}
	c.o.Progress("spool", total, total)
	c.watch.lap("spool")
	c.cs.Lineage.Set(c.pod.ID, c.o.Scope, c.rec.Key)
	c.rec.Stored = max(c.newStored.Load(), 1)
	c.rec.Warning = joinWarnings(c.rec.Warning, c.volumes.outside.Warning(c.meta.Volumes))
	c.entry.noteOrOwe(journal.StageSpooled)
	return nil
}

// parent returns the manifest of the sandbox's last snapshot if this node still has it.
func (c *checkpoint) parent(ctx context.Context) *storage.Manifest {
	k, ok := c.cs.Lineage.Parent(c.pod.ID, c.o.Scope)
	if !ok {
		return nil
	}
	m, err := c.cs.Stores.Spool().Manifest(ctx, k)
	if err != nil {
		c.log.Info("snapshot is stored whole: its parent is not on this node", "parent", k.String(), "reason", err)
		return nil
	}
	c.meta.Parent = &k
	return m
}

// write writes the volumes and the image files, in the order in which a restore reads them.
func (c *checkpoint) write(ctx context.Context, w *storage.Writer, im *capture.Image) error {
	if err := c.volumes.inside.Write(w); err != nil {
		return err
	}
	for _, f := range im.Small {
		if err := writeWhole(w.File(f.Name), f.Data); err != nil {
			return err
		}
	}
	pages := pageWriter{writer: w, pages: w.File(runsc.PagesFile), arena: c.arena}
	return pages.write(ctx, im.Runs)
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
