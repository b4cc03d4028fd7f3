// Package room has what one checkpoint takes of its node's memory and disk, and what bounds that.
//
// A checkpoint takes a share of the agent's memory before it does anything to its sandbox. Once it knows what it will
// save, it has that promised by the spool's disk, and by what may wait for its store. What the sandbox sends while it
// is captured is bounded by what its memory and files had before. How much a sandbox has to save is read from the
// process of its sentry; nothing here speaks with the sandbox.
package room

import (
	"context"
	"fmt"

	"diapause.dev/agent/budget"
	"diapause.dev/api/snapshot"
)

// growth is how many bytes more than twice its present size an image may get until it is captured. Without a bound, a
// sandbox that has been taken over could fill the node's disk with pages that it does not have.
const growth = 1 << 30

// Budgets are what all checkpoints of a node share.
type Budgets struct {
	Memory      *budget.Memory
	Disk        *budget.Disk
	Replication *budget.Replication
	Arena       int64 // bytes of memory for what one checkpoint captures in the pause
}

// Room is what a checkpoint holds of the node's budgets. It belongs to one goroutine, except that a capture that it
// bounds may take more memory.
type Room struct {
	budgets   Budgets
	namespace string
	pod       string // named in errors
	scope     snapshot.Scope
	share     *budget.Share // or nil
	arena     int64         // limit of its arena, in bytes
	mostPages int64         // limit of pages.img, in bytes
	promised  []func()      // end what was promised to it
}

// New returns the room of a checkpoint of that scope. It holds nothing yet. Errors name the pod.
func New(b Budgets, namespace, pod string, scope snapshot.Scope) *Room {
	return &Room{budgets: b, namespace: namespace, pod: pod, scope: scope}
}

// Leave gives back everything.
func (r *Room) Leave() {
	r.share.Return()
	for _, end := range r.promised {
		end()
	}
}

// Arena returns the limit of the arena, in bytes. It is known once TakeMemory has returned.
func (r *Room) Arena() int64 { return r.arena }

// MostPages returns how many bytes the sandbox's pages may have.
func (r *Room) MostPages() int64 { return r.mostPages }

// WriterMemory returns how much memory the writer of the image may hold, in bytes.
func (r *Room) WriterMemory() int64 { return pool(r.arena) }

// TakeMemory waits for this checkpoint's share of the memory for all checkpoints. The sandbox, whose sentry is process
// sandboxPID, runs meanwhile. If it has to wait, it calls progress first, and lap once that is over.
func (r *Room) TakeMemory(ctx context.Context, sandboxPID int, progress func(stage string, done, total int64),
	lap func(stage string),
) error {
	n, err := measure(sandboxPID, r.scope)
	if err != nil {
		return err
	}
	r.arena = min(n.pages(), r.budgets.Arena)
	waited, took := false, n.memoryFor(r.arena)
	r.share, err = r.budgets.Memory.Take(ctx, r.namespace, took, func() {
		waited = true
		progress("memory", 0, took)
	})
	if waited {
		lap("memory")
	}
	if err != nil {
		return fmt.Errorf("pod %s was not saved, and runs on: %w", r.pod, err)
	}
	if waited {
		return r.growArena(sandboxPID, took)
	}
	return nil
}

// growArena takes more memory if the sandbox has grown while it waited, and if there is some. Otherwise the file of the
// arena takes what the sandbox has grown by.
func (r *Room) growArena(sandboxPID int, took int64) error {
	n, err := measure(sandboxPID, r.scope)
	if err != nil {
		return err
	}
	arena := min(n.pages(), r.budgets.Arena)
	if more := n.memoryFor(arena) - took; more > 0 && r.share.Grow(more) == nil {
		r.arena = arena
	}
	return nil
}

// Grow takes n more bytes of memory at once, or refuses. TakeMemory must have succeeded.
func (r *Room) Grow(n int64) error { return r.share.Grow(n) }

// TakeDisk refuses a checkpoint for which the spool's disk has no room, or whose store has too much to catch up with.
// It counts what is to be saved as if it could not be compressed, twice if it goes to a file first, or may be stored
// twice because it changes meanwhile. The latter is so for memory of which twice is true. Volumes have that many bytes.
func (r *Room) TakeDisk(sandboxPID int, volumes int64, twice func(memory int64) bool) error {
	n, err := measure(sandboxPID, r.scope)
	if err != nil {
		return err
	}
	image := n.pages() + volumes
	again := max(n.pages()-r.arena, 0)
	if twice(n.memory) {
		again = n.pages()
	}
	return r.promise(image+again+volumes, image, "runs on")
}

// manifestSize is about what the copy of a snapshot adds to the spool.
const manifestSize = 1 << 20

// TakeCopy refuses a copy of the snapshot on which the pod sleeps, as TakeDisk refuses a checkpoint.
func (r *Room) TakeCopy() error { return r.promise(manifestSize, manifestSize, "sleeps on") }

// promise keeps what the disk and the store's backlog promise until the checkpoint leaves, or returns the refusal. That
// says how the pod stays.
func (r *Room) promise(disk, backlog int64, stays string) error {
	end, err := r.budgets.Disk.Promise(disk)
	if err == nil {
		r.promised = append(r.promised, end)
		end, err = r.budgets.Replication.Promise(r.namespace, backlog)
	}
	if err != nil {
		return fmt.Errorf("pod %s was not saved, and %s: %w", r.pod, stays, err)
	}
	r.promised = append(r.promised, end)
	return nil
}

// SmallFiles returns what takes memory for the image files that are kept whole. Beyond what was set aside for these
// files, the checkpoint's share grows.
func (r *Room) SmallFiles() func(n int64) error {
	left := int64(smallShare)
	return func(n int64) error {
		if left -= n; left >= 0 {
			return nil
		}
		more := -left
		left = 0
		return r.share.Grow(more)
	}
}
