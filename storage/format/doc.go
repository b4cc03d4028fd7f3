// Package format is what the bytes of a store mean: names of objects, packs, data keys, manifests and working sets. It
// turns bytes into values and values into bytes. It does no I/O, and treats everything that it reads as hostile: sizes
// are bounded, ranges are checked, and every digest is checked before bytes are returned. Package storage says in which
// order objects are written, read and deleted, and has the words.
//
// # Packs
//
//	8 bytes   "DIAPACK" and the format version, 2
//	16 bytes  the pack's id
//	8 bytes   zero
//	          the stored bytes of chunks, one after the other, with nothing between them
//
// A chunk's stored bytes can be decoded on their own. The manifest has its codec: 0 zero (all bytes are zero, nothing
// is stored, the chunk is in no pack), 1 none (as they are), 2 zstd (one frame), 3 S2 (one block). If its codec does
// not save more than 1/32 of a chunk, the chunk is stored as it is.
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
// A section is a tag of 4 bytes, the length of its data in 8 bytes, and the data. If a reader does not know a tag, it
// may skip the section if the tag begins with a lower-case letter. Any other unknown tag makes the manifest unreadable
// (ErrFormat). Each of these sections exists exactly once, in any order:
//
//	META  JSON of snapshot.Meta; its key is the snapshot's, whatever object the manifest lies in
//	DKEY  32 bytes: the key of all digests of chunks
//	FILE  4 bytes: number of files; for each its name (1 byte length, then the bytes), 8 bytes size,
//	      4 bytes number of chunks
//	PACK  4 bytes: number of packs; for each 16 bytes id, 8 bytes size, 16 bytes digest
//	CHNK  1 byte: codec of the table (1 or 2), 8 bytes: number of chunks, and the table
//
// and this one at most once; this package writes it after CHNK:
//
//	fing  16 bytes for each chunk of the table: its fingerprint; undefined for a chunk of zeros
//
// and this one at most once, as the last section, with nothing after it but the digest:
//
//	sign  32 bytes: an Ed25519 public key, and its signature of 64 bytes: Ed25519ctx (RFC 8032) with the
//	      context "diapause.dev manifest" over BLAKE3 of all bytes before this section's tag
//
// An encrypted manifest has NAME (JSON of the snapshot's key), LOCK (16 bytes id of the data key, 16 random bytes),
// PACK, and SEAL, in this order and with nothing after them except sign. SEAL encrypts the other sections.
//
// The table holds the chunks of all files, one file after the other, column by column: codecs (1
// byte each), raw lengths (4), stored lengths (4), packs (4, an index into PACK), offsets in the
// pack (4), digests (32). A table stored as zstd shrinks by no more than a factor of 64.
//
// Digests of chunks are BLAKE3 over the raw bytes, with the key of DKEY. That key is random and inherited along a
// lineage. So somebody who can see the store cannot confirm a guess at its content by digests of another lineage. Every
// chunk is checked against its digest before it is returned. Digests of packs are XXH3-128 over the whole object. They
// tell Verify and Replicate whether any bit of a pack has changed, even where this snapshot has no chunk. They need not
// withstand a forger, because a forged chunk fails its own check.
//
// Fingerprints are XXH3-128 over the raw bytes, with a seed that BLAKE3 derives from the key of DKEY. Only the next
// writer of the lineage uses them: if a fingerprint matches, it takes the parent's chunk for its own. No reader relies
// on them. A workload in a sandbox knows neither the fingerprints nor the key. Even if it could give two of its chunks
// one fingerprint, the wrong chunk would be only in its own snapshots.
//
// # Encryption
//
// If a storage.Keyring has a key for a namespace, chunks and manifests are encrypted with AES-256-GCM under a data key.
// A data key is 32 random bytes, inherited along a lineage so that chunks can be shared. Its id is derived from it. Its
// object holds it wrapped:
//
//	8 bytes   "DIAPKEY" and 1
//	16 bytes  the id of the namespace key that wraps it, derived from that key
//	12 bytes  nonce, random
//	48 bytes  the data key, AES-256-GCM under a key derived from the namespace key; authenticated with
//	          it: the object's name
//
// When namespace keys change, storage.Store.Rewrap replaces these objects alone; manifests and packs stay. A manifest
// names its data key by id, so that a key object that was exchanged is found out. A lineage has one such object, which
// is swept like a pack. For each use there is a separate key, derived from the data key by BLAKE3's key derivation
// under a context of its own:
//
//	a pack's      from its id; encrypts each of its chunks, whose nonce is its offset (8 zero bytes, 4
//	              bytes little-endian); authenticated with it: the pack's id and the offset
//	a manifest's  from 16 random bytes; encrypts one section, nonce zero; authenticated with it: all
//	              bytes of the manifest before the section's header, where the snapshot's key and
//	              packs stand
//	a working set's  the same way
//
// An encrypted chunk is 16 bytes longer. Without a key one can see: names of namespaces and snapshots, ids and sizes of
// packs, which packs a snapshot names, times. Digests of chunks are encrypted, and so is their key. A
// snapshot that is not encrypted is refused if its UID says that it is (snapshot.MakeUID), and otherwise as
// storage.Keys.Plain says.
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
package format
