package format

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"diapause.dev/api/snapshot"
)

// Version is the version of manifests, packs and store that this package writes, and the only one
// that it reads.
const Version = 2

// Bounds of the format; sizes are in bytes. Anything beyond them is not read.
const (
	MaxChunk    = 1 << 20   // raw bytes of a chunk
	PackTarget  = 32 << 20  // a pack is sealed before it grows past this, unless the writer is told otherwise
	maxPack     = 256 << 20 // of packs that are read
	MaxManifest = 256 << 20
	maxFiles    = 1 << 16
	maxFileName = 255
	maxPacks    = 1 << 20
)

// MaxChunks is how many chunks a snapshot may have in any case. Its manifest has room for them even if they do not
// compress, beside packs of PackTarget and a Meta of the largest size.
const MaxChunks = (MaxManifest - maxMeta - 1<<20) / (chunkRecord + PrintSize)

// ErrTooManyChunks: a snapshot would have more than MaxChunks chunks.
var ErrTooManyChunks = errors.New("too many chunks for a snapshot")

// Codec says how a chunk's bytes are stored. The numbers are part of the format.
type Codec uint8

const (
	CodecZero Codec = 0 // all bytes are zero; nothing is stored, in no pack
	CodecNone Codec = 1 // stored as they are
	CodecZstd Codec = 2 // one zstd frame
	CodecS2   Codec = 3 // one S2 block
)

// CodecAuto, as an option, lets the writer choose each chunk's codec by what it measures while writing.
const CodecAuto = CodecZero

// ParseCodec reads a codec as a flag names it: auto, none, s2 or zstd.
func ParseCodec(s string) (Codec, error) {
	for _, c := range []Codec{CodecNone, CodecS2, CodecZstd} {
		if s == c.String() {
			return c, nil
		}
	}
	if s == "auto" {
		return CodecAuto, nil
	}
	return 0, fmt.Errorf("codec %.20q: want auto, none, s2 or zstd", s)
}

func (c Codec) String() string {
	switch c {
	case CodecZero:
		return "zero"
	case CodecNone:
		return "none"
	case CodecZstd:
		return "zstd"
	case CodecS2:
		return "s2"
	}
	return fmt.Sprintf("codec(%d)", uint8(c))
}

// Manifest is everything that makes a snapshot: what it is, and where each of its bytes is. A manifest from
// DecodeManifest, or from a store or a writer, is consistent (every index, range and sum holds) and must not be
// changed.
type Manifest struct {
	Format    int
	Meta      snapshot.Meta
	DigestKey [32]byte // keys the digests of chunks; shared along a lineage
	Files     []File   // in the order in which the writer made them
	Packs     []Pack   // each is named by at least one chunk when written by this package
	Digest    [32]byte // of the encoded manifest; set by decoding and by Commit

	// Signer is the key that has signed the manifest, or nil if it is not signed. Decoding has checked the signature, and
	// not whether the key is to be trusted: see storage.Store.Trusts.
	Signer ed25519.PublicKey

	DataKey *DataKey // encrypts the snapshot; nil: not encrypted
}

// Encrypted reports whether the snapshot is encrypted.
func (m *Manifest) Encrypted() bool { return m.DataKey != nil }

// Fingerprinted reports whether the manifest has the fingerprints of its chunks.
func (m *Manifest) Fingerprinted() bool {
	for _, f := range m.Files {
		if len(f.Prints) > 0 {
			return true
		}
	}
	return false
}

// overhead returns how many bytes encryption adds to each stored chunk.
func (m *Manifest) overhead() uint32 {
	if m.DataKey != nil {
		return SealSize
	}
	return 0
}

// File is a sequence of chunks without gaps.
type File struct {
	Name   string // of the image file; a label, never a path
	Size   int64  // bytes; the sum over its chunks
	Chunks []Chunk

	Prints [][PrintSize]byte // fingerprints of the chunks, undefined for CodecZero; or none
}

// Chunk is a piece of a file and where it is stored.
type Chunk struct {
	Digest [32]byte // BLAKE3 of the raw bytes, keyed; zero for CodecZero
	Pack   uint32   // index in Manifest.Packs; 0 for CodecZero
	Offset uint32   // of the first stored byte in the pack; 0 for CodecZero
	Stored uint32   // bytes in the pack; 0 for CodecZero
	Raw    uint32   // bytes, 1 to MaxChunk
	Codec  Codec
}

// Pack is a pack as a manifest names it.
type Pack struct {
	ID     PackID
	Size   int64    // bytes, header included
	Digest [16]byte // XXH3-128 of the whole object. It finds damage; the chunks' digests find forgery
}

// File finds an image file by its name.
func (m *Manifest) File(name string) (*File, bool) {
	for i := range m.Files {
		if m.Files[i].Name == name {
			return &m.Files[i], true
		}
	}
	return nil, false
}

// PackObject returns the name of the object that holds a pack of this manifest.
func (m *Manifest) PackObject(i uint32) string {
	return PackName(m.Meta.Namespace, m.Packs[i].ID)
}
