// Package storage is the snapshot store. It keeps captured sandboxes as chunks in packs, which manifests name, in any
// place that offers the Backend interface. It checks everything that it reads back. It knows nothing of gVisor,
// containerd or Kubernetes; what a snapshot's files mean is up to those who write and read them.
//
// # Words
//
// A chunk is a run of at most 1 MiB of a file, known by its digest. A pack is an immutable object that holds the stored
// bytes of many chunks. A manifest is the object that makes a snapshot exist: it says what the snapshot is and where
// each of its chunks is. A lineage is a snapshot's line of parents; chunks that a parent has are not stored again. To
// replicate is to copy a snapshot from one store to another; the first is often a spool. A sweep deletes packs that
// nothing names any longer. A working set is the list of chunks that a restored sandbox asks for first, in order. A
// data key encrypts the snapshots of a lineage. A namespace key wraps data keys. A signing key signs manifests.
//
// # Layout
//
// Objects of a store, below the place at which its backend was opened:
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
//	<namespace>/sweeps/<id>.void               that sweep is dead; made by who may not delete its notice
//	<namespace>/claims/<id>                    claim of a manifest under way
//	<namespace>/claims/<id>.released           that claim has ended; made by who may not delete it
//
// Any other object in a snapshot's directory belongs to the snapshot and is removed with it. Namespaces and names are
// those of Kubernetes (at most 253 of a-z, 0-9, '-' and '.'), so that no name can lead to another namespace's objects.
// A manifest names packs by their ids, and these are looked for only in the manifest's own namespace.
//
// The id is a store's identity and never changes. A caller that has opened the store before says which one it must be
// (Options.Identity), so that no new store is made where the real one is not mounted.
//
// Package format has the bytes of packs, manifests, data keys and working sets.
//
// # Order of writing
//
// A Writer makes all packs, and the data key, durable before it creates the manifest. A create never replaces an
// object. So whatever dies at whatever point, a snapshot that exists is whole. A snapshot that does not exist leaves at
// most objects that no manifest names. A Sweep deletes these once they are older than its grace. Remove deletes the
// manifest first, and then at once the packs and the data key that only this manifest named. If it dies before that, a
// Sweep deletes them.
//
// # Sweeps beside writers
//
// A sweep tells how old an object is by the backend's clock alone: it writes an object and asks for its time. The
// clocks of nodes do not count. As long as writers commit within the grace, sweeps do not touch their objects. A slower
// writer, or a replication that finds packs of an earlier attempt, may need packs that a sweep has condemned. So
//
//	a sweep    gives notice of what it is about to delete, then reads all claims, then all manifests
//	           that have come since it first read them, then deletes what is neither claimed nor
//	           named, then removes the notice;
//	a writer   lays a claim to what its manifest will name, then reads all notices, then checks that
//	           all these objects exist, then creates the manifest, then releases the claim;
//	a removal  deletes its manifest, and then does what a sweep does with the objects that this
//	           manifest named, whatever their age: a writer that has not claimed them yet finds that
//	           they are gone;
//	a reader   that must not lose its snapshot (Hold) lays a claim to what it reads, then checks that
//	           the manifest exists; if the manifest is gone when the reader ends, the reader does
//	           what a removal does.
//
// A sweep that does not find the claim has looked too early or too late for it. If it has looked too late, it finds the
// manifest. If it has looked too early, it had given notice before the claim was laid. Then the writer finds the
// notice, or the notice has been removed and the object is gone. In both cases the writer fails before there is a
// manifest. A replication does not fail: it waits until the notice is gone and copies again; so does a writer with its
// data key. All this needs no clocks, only a backend in which a read sees every write that ended before it. It holds
// whichever process dies at whatever point.
//
// A replication lays its claim while it copies. If copying has taken long, it lays the claim again before it reads the
// notices. A long Hold lays its claim again and again. Each time this makes another object, since overwriting one takes
// the right to delete it. The one before stays for ten minutes, for a sweep that has listed the claims and has not read
// them yet; after that time such a sweep deletes nothing.
//
// The claim of a dead writer must end at some time, so a sweep ignores a claim that is as old as the sweep's grace. For
// this reason a writer checks notices and objects once more after it has created its manifest, and deletes the manifest
// if need be. A dead sweep leaves a notice. The next sweep removes a notice that is ten minutes old. So does whoever
// finds that it was as old when he laid his claim, or has waited for its end for ten minutes. If he may not delete it,
// he makes an object that says that it is void. Such an object counts for writers only if the notice was ten minutes
// old by then. A live sweep checks, before each few objects that it deletes, that its notice still exists and is not
// void. It deletes nothing after five minutes by any clock of its machine: a machine that was suspended meanwhile has
// missed what others have done. (Between the check and the deletion lie microseconds. Nothing guards against a machine
// that is suspended just there.)
//
// Nobody can tell what a damaged manifest names. So it stops the sweep of its namespace, until it is a day old. From
// then on it names nothing: otherwise whoever may create objects could keep a namespace's garbage for ever. A sweep
// logs it, and reads it twice before it deletes anything. A manifest of another format stops the sweep at any age.
//
// # Pipeline
//
// A Writer's stages overlap: several goroutines fingerprint, digest and compress chunks, the chunks are laid into packs
// in their order, and several packs are written at a time. Its memory is bounded whatever the snapshot's size, except
// for up to 256 bytes for each chunk. A chunk's codec is chosen when its turn comes, by what has been measured so far
// of codecs and backend: see chooser.
//
// A fingerprint costs a quarter of a digest and tells which chunks the parent has. Only a chunk with an unknown
// fingerprint is digested, and only a chunk with an unknown digest is compressed. The first snapshot of a lineage has
// no parent to compare with, and no fingerprints. The second one takes fingerprints. From the third on, they save the
// digests of everything that has not changed.
//
// A Reader reads neighbouring chunks together, up to 8 MiB at a time, with several such reads at once. It decodes them
// on all processors straight into the caller's memory. Before the first byte of a chunk there is one read for the
// manifest, one for the data key of an encrypted lineage (only once), and one for the chunk. A PackCache may stand
// between the Reader and the backend. When a store deletes an object, its PackCache drops it.
//
// # Long lineages
//
// A child names packs of its parent again, as long as there are not too many (32, or twice what the bytes would fill)
// and four fifths of their bytes are used. Otherwise the chunks in the least used packs are written anew. So however
// long a lineage is, a snapshot is read nearly as fast as one that was written whole, and a small change takes only a
// few times its size.
//
// # Signatures
//
// A digest finds damage, and no forger: whoever can write to a store can replace a snapshot by a valid one of his own.
// A store with a signing key (Options.SigningKey) signs the manifests of its new snapshots. A manifest has the digests
// of all chunks. So its signature holds for every byte of the snapshot, and for its name. Replicate and Repair copy
// manifests byte for byte, with their signatures. A signature that does not fit its manifest is damage.
//
// If a store has trusted keys (Options.Trusted), TrustedManifest returns no snapshot that none of them has signed.
// Whoever starts something from a snapshot must begin there. A Writer uses nothing of an untrusted parent, and Repair
// takes no untrusted manifest from another store. Reading, listing, verifying, copying and removing treat all snapshots
// alike.
//
// A signature does not tell which of two snapshots is meant that had one name: the UID does. Working sets and marks of
// damage are not signed. Forged ones can make a restore slower, or prevent it.
//
// # Bounds
//
// A manifest has at most 256 MiB, with 65 bytes for each chunk if nothing compresses. So a snapshot has room for
// MaxChunks chunks in any case: 235 GiB in pieces of 64 KiB. A caller that knows how many chunks will come asks before
// (FileWriter.Expect).
//
// # Damage
//
// Verify finds damage, and names the snapshot and the object. A Replicate whose source is damaged ends with ErrSource.
// MarkDamaged records damage beside the manifest. A Writer reuses no chunk of a parent that is marked, or that has lost
// a pack. Repair copies sound objects back from another store; nothing else can be brought back.
//
// # Errors
//
// Test kinds with errors.Is: ErrIdentity, ErrNotFound, ErrExists, ErrTruncated, ErrTooLarge, ErrCorrupt, ErrSource,
// ErrFormat, ErrInvalidName, ErrKey, ErrUntrusted, ErrNoSpace, ErrUnavailable, ErrDenied, ErrTooManyChunks. A
// CorruptError names the object and the snapshot that it affects. Everything read from a store is treated as hostile:
// sizes are bounded, ranges are checked, and every digest is checked before bytes are returned.
package storage
