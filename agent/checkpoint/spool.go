package checkpoint

import (
	"context"
	"iter"
	"time"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
	"diapause.dev/storage"
)

// toSpool compresses and stores the captured image. When it returns without an error, the snapshot is restorable on
// this node, whatever happens to the agent or the machine.
func (c *checkpoint) toSpool(ctx context.Context, im *capture.Image) error {
	total := im.Size() + c.volumeBytes()
	codec, err := c.cs.Stores.Codec(c.rec.Store)
	if err != nil {
		return err
	}
	w, err := c.cs.Stores.Spool().NewWriter(ctx, c.rec.Key, storage.WriterOptions{
		Codec:  codec,
		Parent: c.parent(ctx),
		Memory: pool(c.room.arena),
		Progress: func(raw, stored int64) {
			c.room.newStored.Store(stored)
			c.o.Progress("spool", raw, total)
		},
	})
	if err != nil {
		return err
	}
	if err := c.write(w, im); err != nil {
		w.Abort()
		return err
	}
	c.meta.Created = time.Now()
	c.meta.Overflow = c.arena.Overflow()
	c.meta.Memory = im.Memory
	c.meta.Timeline = c.watch.stages
	if _, err := w.Commit(ctx, c.meta); err != nil {
		return err
	}
	c.o.Progress("spool", total, total)
	c.watch.lap("spool")
	c.cs.Lineage.Set(c.pod.ID, c.o.Scope, c.rec.Key)
	c.rec.Stored = max(c.room.newStored.Load(), 1)
	c.noteOrOwe(journal.StageSpooled)
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
func (c *checkpoint) write(w *storage.Writer, im *capture.Image) error {
	if err := c.writeVolumes(w); err != nil {
		return err
	}
	for _, f := range im.Small {
		if err := writeWhole(w.File(f.Name), f.Data); err != nil {
			return err
		}
	}
	pages := w.File(runsc.PagesFile)
	if err := pages.Expect(count(im.Chunks(snapshots.ChunkSize))); err != nil {
		return err
	}
	for run := range im.Chunks(snapshots.ChunkSize) {
		raw, lasting, err := c.arena.Slice(run.Off, run.Len)
		if err != nil {
			return err
		}
		if lasting {
			err = pages.Chunk(raw)
		} else {
			err = pages.Copy(raw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// count returns how many runs there are.
func count(runs iter.Seq[capture.Run]) (n int) {
	for range runs {
		n++
	}
	return n
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
