package storage

import "diapause.dev/storage/format"

// What a snapshot consists of, and how it is named: see package format.
type (
	// Key names a snapshot.
	Key = format.Key
	// Manifest is everything that makes a snapshot: what it is, and where each of its bytes is.
	Manifest = format.Manifest
	// File is a sequence of chunks without gaps.
	File = format.File
	// Chunk is a piece of a file and where it is stored.
	Chunk = format.Chunk
	// ChunkRef names a chunk of a manifest.
	ChunkRef = format.ChunkRef
	// Pack is a pack as a manifest names it.
	Pack = format.Pack
	// PackID names a pack: 128 random bits.
	PackID = format.PackID
	// Stats sums up a manifest.
	Stats = format.Stats
	// Codec says how a chunk's bytes are stored.
	Codec = format.Codec
	// Secret is a key of 256 bits.
	Secret = format.Secret
	// CorruptError says which object is damaged and which snapshot this affects. It is an ErrCorrupt.
	CorruptError = format.CorruptError
)

// Codecs of chunks. CodecAuto, as an option, lets the writer choose each chunk's codec by what it measures while
// writing.
const (
	CodecAuto = format.CodecAuto
	CodecZero = format.CodecZero
	CodecNone = format.CodecNone
	CodecZstd = format.CodecZstd
	CodecS2   = format.CodecS2
)

// Bounds of a snapshot, and the object that makes a place a store.
const (
	MaxChunk   = format.MaxChunk   // raw bytes of a chunk
	MaxChunks  = format.MaxChunks  // of a snapshot
	PackTarget = format.PackTarget // a pack is sealed before it grows past this, unless WriterOptions.PackSize is set
	Marker     = format.Marker
)

// ParseCodec reads a codec as a flag names it: auto, none, s2 or zstd.
func ParseCodec(s string) (Codec, error) { return format.ParseCodec(s) }

// DecodeManifest reads the bytes of a manifest object that is not encrypted: see format.DecodeManifest.
func DecodeManifest(data []byte) (*Manifest, error) { return format.DecodeManifest(data) }

// EncodeManifest returns the bytes of the object that holds m, without a signature: see format.EncodeManifest.
func EncodeManifest(m *Manifest) ([]byte, error) { return format.EncodeManifest(m) }

// CorruptErrors returns all the CorruptErrors in err, in order.
func CorruptErrors(err error) []*CorruptError { return format.CorruptErrors(err) }
