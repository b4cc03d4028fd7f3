// Package snapshots knows which snapshots there are, and where: in the spool of this node, in the agent's own
// store, and in stores that a cluster names.
//
// Stores opens these places. A Catalog finds, lists, verifies, repairs and deletes snapshots. A Replicator copies them
// from the spool to their stores. Readers are what restores read from. An Evictor keeps the node's disk within its
// bound.
//
// Locks are taken in this order: Stores.moving of a snapshot, Readers.mu, Backlog.mu; the others are leaves.
package snapshots

// ChunkSize is the size of the windows in a memory file at which pages are cut into chunks, in
// bytes. It is chosen by measurement (bench/store, dedup/dirty5): with 5 % of a Python heap's pages
// rewritten at random, the next snapshot stores 0.59 of a whole one, against 0.98 with windows of
// 256 KiB; writing and reading are no slower, a whole snapshot is 0.6 % larger, and its chunk table
// has about 0.6 MiB for each GiB of memory.
const ChunkSize = 64 << 10
