package checkpoint

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"diapause.dev/agent/budget"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/storage"
)

// What one checkpoint holds of the agent's memory besides its arena.
const (
	// smallShare is for the image files except pages.img. They usually have a megabyte; if a sandbox sends more, the
	// share grows.
	smallShare = 16 << 20
	// minPool and maxPool bound what the spool's writer holds.
	minPool = 64 << 20
	maxPool = 256 << 20
	// perChunk is for a chunk's entry in the tables of manifests (see storage.WriterOptions).
	perChunk = 256
)

// workloadTime bounds how long a save that a workload has begun waits for memory. Nobody else sets it a limit.
const workloadTime = 150 * time.Second

// growth is how many bytes more than twice its present size an image may get until it is captured. Without a bound, a
// sandbox that has been taken over could fill the node's disk with pages that it does not have.
const growth = 1 << 30

// room is what a checkpoint holds of the node's budgets.
type room struct {
	share     *budget.Share // or nil
	arena     int64         // limit of its arena, in bytes
	mostPages int64         // limit of pages.img, in bytes
	promised  []func()      // end what was promised to it
	newStored atomic.Int64  // bytes that it has added to the spool
}

// leave gives back everything.
func (r *room) leave() {
	r.share.Return()
	for _, end := range r.promised {
		end()
	}
}

// need is what a sandbox has to save, in bytes. Its volumes on the node do not count.
type need struct {
	memory int64 // what its memory file has allocated; 0 for files alone, of which only the sentry knows the size there
	disk   int64 // the same of its root file systems that are kept on disk
}

// measure returns what a sandbox has to save now.
func measure(sandboxPID int, scope snapshot.Scope) (n need, err error) {
	if n.disk, err = runsc.FileStoreUsage(sandboxPID); err != nil || scope == snapshot.RootfsOnly {
		return n, err
	}
	n.memory, err = runsc.MemoryUsage(sandboxPID)
	return n, err
}

// pages returns the size that pages.img is expected to have.
func (n need) pages() int64 { return n.memory + n.disk + slack }

// memoryFor returns what a checkpoint takes of the agent's memory, with an arena of so many bytes.
func (n need) memoryFor(arena int64) int64 {
	return arena + pool(arena) + smallShare + n.pages()/snapshots.ChunkSize*perChunk
}

// pool returns the memory for the writer of an image: a small image needs little.
func pool(arena int64) int64 { return min(max(arena, minPool), maxPool) }

// takeMemory waits for this checkpoint's share of the memory for all checkpoints. The sandbox runs meanwhile.
func (c *checkpoint) takeMemory(ctx context.Context) error {
	if c.o.sentry != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, workloadTime)
		defer cancel()
	}
	n, err := measure(c.pod.SandboxPID, c.o.Scope)
	if err != nil {
		return err
	}
	c.room.arena = min(n.pages(), c.cs.Arena)
	waited, took := false, n.memoryFor(c.room.arena)
	c.room.share, err = c.cs.Memory.Take(ctx, c.pod.Namespace, took, func() {
		waited = true
		c.o.Progress("memory", 0, took)
	})
	if waited {
		c.watch.lap("memory")
	}
	if err != nil {
		return fmt.Errorf("pod %s was not saved, and runs on: %w", c.pod, err)
	}
	if waited {
		return c.growArena(took)
	}
	return nil
}

// growArena takes more memory if the sandbox has grown while it waited, and if there is some. Otherwise the file of the
// arena takes what the sandbox has grown by.
func (c *checkpoint) growArena(took int64) error {
	n, err := measure(c.pod.SandboxPID, c.o.Scope)
	if err != nil {
		return err
	}
	arena := min(n.pages(), c.cs.Arena)
	if more := n.memoryFor(arena) - took; more > 0 && c.room.share.Grow(more) == nil {
		c.room.arena = arena
	}
	return nil
}

// takeDisk refuses a checkpoint for which the spool's disk has no room, or whose store has too much to catch up with.
// It counts what is to be saved as if it could not be compressed, twice if it goes to a file first, or may be stored
// twice because it changes meanwhile.
func (c *checkpoint) takeDisk() error {
	n, err := measure(c.pod.SandboxPID, c.o.Scope)
	if err != nil {
		return err
	}
	image := n.pages() + c.volumes.Size()
	again := max(n.pages()-c.room.arena, 0)
	if c.large(n.memory) {
		again = n.pages()
	}
	if err := c.promise(c.cs.Disk.Promise(image + again + c.volumes.Size())); err != nil {
		return err
	}
	return c.promise(c.cs.Replication.Promise(c.pod.Namespace, image))
}

// promise keeps what was promised until the checkpoint leaves, or returns the refusal.
func (c *checkpoint) promise(end func(), err error) error {
	if err != nil {
		return fmt.Errorf("pod %s was not saved, and %s: %w", c.pod, c.stays(), err)
	}
	c.room.promised = append(c.room.promised, end)
	return nil
}

// boundCapture bounds what the sandbox sends while it is captured: pages, and image files that are kept whole. Beyond
// what was set aside for these files, the checkpoint's share grows.
func (c *checkpoint) boundCapture() {
	c.arena.Bound(c.room.mostPages)
	left := int64(smallShare)
	c.capture.Bound(func(n int64) error {
		if left -= n; left >= 0 {
			return nil
		}
		more := -left
		left = 0
		return c.room.share.Grow(more)
	})
}

// Waiting returns a function that lists the snapshots that are in the spool and not in their store yet, as the journal
// knows them.
func Waiting(j *journal.Journal, spool *storage.Store) func() []budget.Waiting {
	return func() (out []budget.Waiting) {
		for _, r := range j.Where(func(r *journal.Record) bool { return r.Stage == journal.StageSpooled }) {
			w := budget.Waiting{Namespace: r.Key.Namespace, Bytes: r.Stored}
			if w.Bytes == 0 { // an earlier agent did not note it
				if m, err := spool.Manifest(context.Background(), r.Key); err == nil { // a file on this disk
					w.Bytes = m.Stats().StoredBytes
				}
			}
			out = append(out, w)
		}
		return out
	}
}
