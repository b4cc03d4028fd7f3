// Package storage is the snapshot store: it keeps what was captured of sandboxes as chunks in
// packs, named by manifests, in any place that offers the Backend interface, and gives it back
// checked. It knows nothing of gVisor, containerd or Kubernetes; what a snapshot's files mean is
// for those who write and read them.
//
// # Words
//
// A chunk is a run of at most 1 MiB of a file, known by its digest. A pack is an immutable object
// that holds the stored bytes of many chunks. A manifest is the object that makes a snapshot exist: it
// says what the snapshot is and where each of its chunks lies. A lineage is a snapshot's line of
// parents; chunks that a parent has are not stored again. To replicate is to copy a snapshot from
// one store to another, the first of which is often a spool. A sweep deletes packs that nothing
// names any more.
//
// # Layout
//
// Objects of a store, below the place its backend was opened on:
//
//	diapause.json                              {"product":"diapause","format":1}, created once
//	<namespace>/packs/<id>                     a pack; id is 32 lower-case hex digits, random
//	<namespace>/snapshots/<name>/manifest      a manifest, created once
//
// What else lies in a snapshot's directory belongs to the snapshot and goes with it. Namespaces and names
// are those of Kubernetes (at most 253 of a-z, 0-9, '-' and '.'), so that no name can lead to another
// namespace's objects; a manifest names packs by their ids, and these are looked for in the manifest's
// own namespace alone.
//
// # Order of writing
//
// A Writer makes all packs durable before it creates the manifest, and creating is create-only. So
// whatever dies at whatever point, a snapshot that exists is whole; what is left of one that does
// not exist is packs that no manifest names, which a Sweep deletes once they are older than its
// grace. Remove deletes the manifest first.
//
// # Packs
//
//	8 bytes   "DIAPACK" and the format version, 1
//	16 bytes  the pack's id
//	8 bytes   zero
//	          the stored bytes of chunks, one behind the other, without anything between them
//
// A chunk's stored bytes decode alone. Its codec stands in the manifest: 0 zero (all bytes are
// zero, nothing is stored, the chunk is in no pack), 1 none (as they are), 2 zstd (one frame), 3 S2
// (one block). A chunk that its codec does not make smaller by 1/32 is stored as it is.
//
// # Pipeline
//
// A Writer's stages overlap: chunks are digested and compressed by several goroutines, laid into
// packs in their order, and packs are written several at a time. Its memory is bounded whatever the
// snapshot's size. Which codec a chunk gets is decided when its turn comes, by what has been measured
// so far of codecs and backend: see chooser.
//
// # Manifests
//
// All numbers are little-endian.
//
//	8 bytes   "DIAMANIF"
//	4 bytes   format version, 1
//	          sections
//	32 bytes  BLAKE3 of all bytes before
//
// A section is a tag of 4 bytes, the length of its data in 8 bytes, and the data. A tag that begins
// with a lower-case letter may be skipped by a reader that does not know it; any other unknown tag
// makes the manifest unreadable for it (ErrFormat). Each of these stands exactly once, in any order:
//
//	META  JSON of snapshot.Meta; its key is the snapshot's, whatever object the manifest lies in
//	DKEY  32 bytes: the key of all digests of chunks and packs
//	FILE  4 bytes: number of files; for each its name (1 byte length, then the bytes), 8 bytes size,
//	      4 bytes number of chunks
//	PACK  4 bytes: number of packs; for each 16 bytes id, 8 bytes size, 32 bytes digest
//	CHNK  1 byte: codec of the table (1 or 2), 8 bytes: number of chunks, and the table
//
// The table holds the chunks of all files, one file after the other, column by column: codecs (1
// byte each), raw lengths (4), stored lengths (4), packs (4, an index into PACK), offsets in the
// pack (4), digests (32). A table stored as zstd shrinks by no more than a factor of 64.
//
// Digests of chunks (over the raw bytes) and of packs (over the whole object) are BLAKE3 with the
// key of DKEY, which is random and inherited along a lineage: who can see the store cannot confirm
// a guess at what is in it from digests of another lineage.
//
// # Errors
//
// Kinds are asked for with errors.Is: ErrNotFound, ErrExists, ErrTruncated, ErrCorrupt, ErrFormat,
// ErrInvalidName, ErrNoSpace, ErrUnavailable. A CorruptError names the object and the snapshot it
// hurts. Everything read from a store is taken for hostile: sizes are bounded, ranges checked, and no
// byte is handed out before its digest has been compared.
package storage
