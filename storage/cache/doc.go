// Package cache keeps on a node's disk what was read of a store's packs, for the next restore. It
// implements storage.PackCache: give it to the storage.Store that is far away.
//
// A pack is kept in blocks of 1 MiB, each a file of its own, which hold what the store holds: what is
// encrypted there is encrypted here. Of concurrent readers of a block one fetches it, the others
// wait for it; neighbouring blocks are fetched together.
//
// A file is written under another name and renamed, without waiting for the disk, and carries a
// checksum over its data and over what it is a block of. So whatever dies at whatever point, a file
// holds its block or is found not to, and is fetched again. That the bytes are those of the
// snapshot is for the reader to check, as if there were no cache.
//
// Blocks of an object that is deleted go with Drop, or with Retain where another node has deleted it.
//
// The files together are no larger than a bound; the least recently used go first. One process at a
// time has a directory open.
package cache
