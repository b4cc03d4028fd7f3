// Package cache keeps on a node's disk what restores have read of a store's packs, for the next restore. It implements
// storage.PackCache: give it to a storage.Store that is far away.
//
// A pack is kept in blocks of 1 MiB, each in its own file. Blocks hold the same bytes as the store: what is encrypted
// there is encrypted here. If several readers need a block, one fetches it and the others wait. Neighbouring blocks are
// fetched together.
//
// A file is written under another name and renamed, without waiting for the disk. It carries a checksum over its data
// and over the block's identity. So whatever dies at whatever point, a file either holds its block, or is found to be
// damaged and fetched again. The reader must check that the bytes are those of the snapshot, as if there were no cache.
//
// Drop removes the blocks of a deleted object. Retain removes those of objects that another node has deleted.
//
// All files together are no larger than a bound; the least recently used are evicted first. Only one process at a time
// can have a directory open.
package cache
