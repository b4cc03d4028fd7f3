// Package snapshots knows which snapshots there are, and where: in the spool of this node, in the agent's own
// store, and in stores that a cluster names.
//
// Stores opens these places. A Catalog finds, lists, verifies, repairs and deletes snapshots. A Replicator copies them
// from the spool to their stores. Restores read from Readers. An Evictor keeps the node's disk usage within its bound.
//
// Five methods of Catalog remove a snapshot:
//
//	               from the spool   from stores             its cluster object
//	Delete         yes              all                     yes
//	Remove         yes              the one at a location   no
//	Withdraw       yes              none                    no
//	Forget         yes              none                    no
//	RemoveStored   no               the one at a location   no
//
// If the cluster knows the snapshot, Delete only has its PodSnapshot deleted, and waits. The origin node then calls
// Remove or, if the data is in a bucket, Withdraw: from a bucket the controller removes it. Other nodes call Forget.
//
// The order in which locks are taken is in docs/design/architecture.md, "Locks".
package snapshots

// ChunkSize is the size in bytes of the windows in which a memory file is cut into chunks. It was chosen by measurement
// (bench/store, dedup/dirty5). After 5 % of a Python heap's pages are rewritten at random, the next snapshot stores
// 0.59 of a full one; with windows of 256 KiB it stores 0.98. Writing and reading are no slower. A full snapshot grows
// by 0.6 %. Its chunk table has about 0.6 MiB for each GiB of memory.
const ChunkSize = 64 << 10
