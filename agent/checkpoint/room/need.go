package room

import (
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
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

// Slack is how many bytes an arena has beyond the memory in use. They are for what the sandbox allocates until it is
// paused, and for the memory of its file systems.
const Slack = 16 << 20

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
func (n need) pages() int64 { return n.memory + n.disk + Slack }

// memoryFor returns what a checkpoint takes of the agent's memory, with an arena of so many bytes.
func (n need) memoryFor(arena int64) int64 {
	return arena + pool(arena) + smallShare + n.pages()/snapshots.ChunkSize*perChunk
}

// pool returns the memory for the writer of an image: a small image needs little.
func pool(arena int64) int64 { return min(max(arena, minPool), maxPool) }
