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
// names any more. A working set is the chunks that a restored sandbox asks for first, in order. A
// data key encrypts the snapshots of a lineage, a namespace key wraps data keys.
//
// # Layout
//
// Objects of a store, below the place its backend was opened on:
//
//	diapause.json                              {"product":"diapause","format":2,"id":"…"}, created once
//	diapause_id.json                           {"product":"diapause","id":"…"}, created once, if that has no id
//	<namespace>/packs/<id>                     a pack; id is 32 lower-case hex digits, random
//	<namespace>/keys/<id>                      a wrapped data key, replaced when namespace keys change
//	<namespace>/snapshots/<name>/manifest      a manifest, created once
//	<namespace>/snapshots/<name>/workingset    small, replaceable
//	<namespace>/snapshots/<name>/damaged       why it cannot be restored from this store, if that is known
//	<namespace>/snapshots/<name>/manifest.damaged  what stood in the manifest's place before a repair
//	<namespace>/sweeps/<id>                    notice of a sweep under way
//	<namespace>/claims/<id>                    claim of a manifest under way
//
// What else lies in a snapshot's directory belongs to the snapshot and goes with it. Namespaces and names
// are those of Kubernetes (at most 253 of a-z, 0-9, '-' and '.'), so that no name can lead to another
// namespace's objects; a manifest names packs by their ids, and these are looked for in the manifest's
// own namespace alone.
//
// The id is a store's identity, for good: who has opened a store before says which one it must be
// (Options.Identity), so that none is made anew where the real one is not mounted.
//
// # Order of writing
//
// A Writer makes all packs, and the data key, durable before it creates the manifest, and creating is
// create-only. So whatever dies at whatever point, a snapshot that exists is whole; what is left of
// one that does not exist is packs that no manifest names, which a Sweep deletes once they are older
// than its grace. Remove deletes the manifest first, and then at once the packs and the data key that
// only this manifest named; what it leaves because it dies is left to a Sweep.
//
// # Sweeps beside writers
//
// How old an object is, a sweep tells by the backend's clock alone: it writes an object and asks for
// its time. No node's clock counts. As long as writers commit within the grace, sweeps do not touch
// what they make. A writer that is slower, or a replication that finds packs of an earlier attempt,
// may meet a sweep that has condemned them. So
//
//	a sweep    gives notice of what it is about to delete, then reads all claims, then all manifests
//	           that have come since it read them first, then deletes what is neither claimed nor
//	           named, then takes the notice away;
//	a writer   lays claim to what its manifest will name, then reads all notices, then asks for all
//	           these objects, then creates the manifest, then releases the claim;
//	a removal  deletes its manifest, and then does what a sweep does with the objects that this one
//	           named, whatever their age: who has not claimed them yet finds that they are gone;
//	a reader   that cannot do without a snapshot (Hold) lays claim to what it reads, then asks whether
//	           the manifest is there, and when it ends, does what a removal does if it is not.
//
// A sweep that does not find the claim has looked too early or too late for it. Too late: then it
// finds the manifest. Too early: then it had given notice before the claim was made, and the writer
// either finds the notice, or the notice has been taken away and with it the object is gone. It
// fails then, before there is a manifest; a replication waits until the notice is gone and copies
// again. That needs no clocks, only a backend in which a read sees every write that ended before, and
// holds whoever dies at whatever point.
//
// A replication lays its claim while it copies, and again before it reads the notices if copying has
// taken long.
//
// The claim of a writer that died must end some time: a sweep does not heed one that is as old as
// its grace. So a writer looks for notices and objects once more behind its manifest, which it takes
// back if need be. A sweep that died leaves a notice. Whoever finds one that is ten minutes old takes
// it away before going on. A sweep that lives looks, before each few objects that it deletes, whether
// its notice is still there, and deletes nothing any more after five minutes by any clock of its
// machine: one that was suspended meanwhile has missed what others have done. (Between that look and the
// deletion lie microseconds; a machine that is suspended just there is not guarded against.)
//
// # Packs
//
//	8 bytes   "DIAPACK" and the format version, 2
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
// A Writer's stages overlap: chunks are fingerprinted, digested and compressed by several goroutines,
// laid into packs in their order, and packs are written several at a time. Its memory is bounded
// whatever the snapshot's size, except for up to 256 bytes for each chunk. Which codec a chunk gets is decided when its
// turn comes, by what has been measured so far of codecs and backend: see chooser.
//
// A fingerprint costs a quarter of a digest and tells which chunks the parent has. Only a chunk that is
// not known by it is digested, and only one whose digest is not known either is compressed. The first
// snapshot of a lineage has nothing to recognise, and no fingerprints: the second one takes them, and
// from the third on they spare the digests of all that has not changed.
//
// A Reader reads neighbouring chunks together, up to 8 MiB at a time, several such reads at once, and
// decodes them on all processors straight into the caller's memory. Before the first byte of a chunk
// there is one read for the manifest, one for the data key of an encrypted lineage, once, and one for
// the chunk. A PackCache may stand between the Reader and the backend; of what a store deletes, its
// PackCache keeps nothing.
//
// # Long lineages
//
// A child names packs of its parent again, as long as they are not too many (32, or twice what the
// bytes would fill) and four fifths of their bytes are used. Otherwise the chunks in the packs that
// are used least are written anew. So however long a lineage is, a snapshot is read nearly as fast as
// one that was written whole; and what is stored for a small change is a few times that change.
//
// # Encryption
//
// Where a Keyring has a key for a namespace, chunks and manifests are encrypted with AES-256-GCM under
// a data key: 32 random bytes, inherited along a lineage, so that chunks can be shared. The data
// key's id is derived from it. Its object holds it wrapped:
//
//	8 bytes   "DIAPKEY" and 1
//	16 bytes  the id of the namespace key that wraps it, derived from that
//	12 bytes  nonce, random
//	48 bytes  the data key, AES-256-GCM under a key derived from the namespace key; authenticated with
//	          it: the object's name
//
// Namespace keys change by Rewrap, which replaces these objects alone; manifests and packs stay. A
// manifest names its data key by id, so that a key object that was exchanged is found out. There is
// one such object for a lineage, and it is swept like a pack. All keys that are used for something
// are derived from the data key by BLAKE3's key derivation, each under a context of its own:
//
//	a pack's      from its id; encrypts each of its chunks, whose nonce is its offset (8 zero bytes, 4
//	              bytes little-endian); authenticated with it: the pack's id and the offset
//	a manifest's  from 16 random bytes; encrypts one section, nonce zero; authenticated with it: all
//	              bytes of the manifest before the section's header, where the snapshot's key and
//	              packs stand
//	a working set's  the same way
//
// An encrypted chunk is 16 bytes longer. What can be seen without a key: names of namespaces and
// snapshots, ids and sizes of packs, which packs a snapshot names, times. Digests of chunks are inside,
// and so is their key. Where a namespace must be encrypted, a snapshot that is not is refused.
//
// # Working sets
//
//	7 bytes   "DIAWSET"
//	1 byte    0 plain, 1 encrypted
//	32 bytes  the digest of the manifest that it belongs to
//	          plain: the list, and BLAKE3 of all bytes before; encrypted: 16 random bytes, and the
//	          list, encrypted; authenticated with it: all bytes before
//
// The list holds, for each chunk, 4 bytes index of the file and 4 bytes index of the chunk in it,
// little-endian.
//
// # Manifests
//
// All numbers are little-endian.
//
//	8 bytes   "DIAMANIF"
//	4 bytes   format version, 2
//	          sections
//	32 bytes  BLAKE3 of all bytes before
//
// A section is a tag of 4 bytes, the length of its data in 8 bytes, and the data. A tag that begins
// with a lower-case letter may be skipped by a reader that does not know it; any other unknown tag
// makes the manifest unreadable for it (ErrFormat). Each of these stands exactly once, in any order:
//
//	META  JSON of snapshot.Meta; its key is the snapshot's, whatever object the manifest lies in
//	DKEY  32 bytes: the key of all digests of chunks
//	FILE  4 bytes: number of files; for each its name (1 byte length, then the bytes), 8 bytes size,
//	      4 bytes number of chunks
//	PACK  4 bytes: number of packs; for each 16 bytes id, 8 bytes size, 16 bytes digest
//	CHNK  1 byte: codec of the table (1 or 2), 8 bytes: number of chunks, and the table
//
// and this one at most once, behind CHNK when written by this package:
//
//	fing  16 bytes for each chunk of the table: its fingerprint; undefined for one of zeros
//
// An encrypted manifest has, in this order and with nothing behind them, NAME (JSON of the snapshot's
// key), LOCK (16 bytes id of the data key, 16 random bytes), PACK, and SEAL, which encrypts the other
// sections.
//
// The table holds the chunks of all files, one file after the other, column by column: codecs (1
// byte each), raw lengths (4), stored lengths (4), packs (4, an index into PACK), offsets in the
// pack (4), digests (32). A table stored as zstd shrinks by no more than a factor of 64.
//
// Digests of chunks, over the raw bytes, are BLAKE3 with the key of DKEY, which is random and
// inherited along a lineage: who can see the store cannot confirm a guess at what is in it from
// digests of another lineage. Nothing that a chunk's digest has not been compared with is handed out.
// Those of packs are XXH3-128 over the whole object. They tell verify and Replicate that any of its
// bits has changed, also where this snapshot has no chunk; they need not withstand a forger, since a
// forged chunk does not pass.
//
// Fingerprints, over the raw bytes too, are XXH3-128 with a seed that BLAKE3 derives from the key of
// DKEY. They serve the next writer of the lineage alone, which takes a chunk of the parent for what it
// has before it; no reader relies on them. What runs in a sandbox knows neither them nor the key; did it
// have two of its chunks taken for one all the same, the wrong one would be in its own snapshots alone.
//
// # Bounds
//
// A manifest has at most 256 MiB, with 65 bytes for each chunk if nothing of it compresses. So a snapshot surely has
// room for MaxChunks chunks: 235 GiB in pieces of 64 KiB. Who knows how many chunks will come asks before
// (FileWriter.Expect).
//
// # Damage
//
// Verify finds it, and names the snapshot and the object. A Replicate whose source is damaged ends with ErrSource.
// MarkDamaged records it beside the manifest: a Writer takes no chunk over from a parent that is marked, or that has
// lost a pack. Repair brings back, from another store, what that has sound; nothing else can be brought back.
//
// # Errors
//
// Kinds are asked for with errors.Is: ErrIdentity, ErrNotFound, ErrExists, ErrTruncated, ErrTooLarge, ErrCorrupt,
// ErrFormat, ErrInvalidName, ErrKey, ErrNoSpace, ErrUnavailable. A CorruptError names the object and the snapshot it
// hurts. Everything read from a store is taken for hostile: sizes are bounded, ranges checked, and no
// byte is handed out before its digest has been compared.
package storage
