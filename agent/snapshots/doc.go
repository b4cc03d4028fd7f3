// Package snapshots knows which snapshots there are, and where: in the spool of this node, in the agent's own
// store, and in stores that a cluster names.
//
// Stores opens these places. A Catalog finds, lists, verifies, repairs and deletes snapshots. A Replicator copies them
// from the spool to their stores. Restores read from Readers. An Evictor keeps the node's disk usage within its bound.
//
// Catalog.Remove removes a snapshot. Who has it removed, and from where:
//
//	                                    from              in use
//	an operator, or its pod's next one  everywhere        fails
//	the node that made it               spool and store   ignored
//	the same, if it is in a bucket      spool             ignored
//	another node                        spool             fails
//	a sweep                             store, exactly    fails
//	the controller                      store             ignored
//
// If the cluster knows the snapshot, a removal from everywhere only has its PodSnapshot deleted, and waits. The origin
// node then removes the data. From a bucket the controller removes it.
//
// The order in which locks are taken is in docs/design/architecture.md, "Locks".
package snapshots

// ChunkSize is the size in bytes of the windows in which a memory file is cut into chunks. It was chosen by measurement
// (bench/store, dedup/dirty5). After 5 % of a Python heap's pages are rewritten at random, the next snapshot stores
// 0.59 of a full one; with windows of 256 KiB it stores 0.98. Writing and reading are no slower. A full snapshot grows
// by 0.6 %. Its chunk table has about 0.6 MiB for each GiB of memory.
const ChunkSize = 64 << 10
