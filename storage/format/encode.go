package format

import (
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/zeebo/blake3"
)

// The parts of an encoded manifest. doc.go describes the whole format.
const (
	manifestMagic  = "DIAMANIF"
	manifestPrefix = len(manifestMagic) + 4 // and the version
	sectionPrefix  = 4 + 8                  // tag and length
	DigestSize     = 32

	tagMeta   = "META"
	tagKey    = "DKEY"
	tagFiles  = "FILE"
	tagPacks  = "PACK"
	tagChunks = "CHNK"
	tagName   = "NAME"
	tagLock   = "LOCK"
	tagSeal   = "SEAL"
	tagPrints = "fing"

	saltSize = 16

	maxMeta      = 16 << 20
	packRecord   = 16 + 8 + 16
	chunkRecord  = DigestSize + 4*4 + 1
	PrintSize    = 16
	tableHeader  = 1 + 8     // codec and number of chunks
	maxTable     = 512 << 20 // raw bytes of the chunk table
	maxExpansion = 64        // raw bytes of the chunk table per stored one
)

// EncodeManifest returns the bytes of the object that holds m. It refuses a manifest that DecodeManifest would refuse.
// It ignores m.Format, m.Digest and m.Signer: the result is not signed.
func EncodeManifest(m *Manifest) ([]byte, error) { return EncodeSigned(m, nil) }

// EncodeSigned is EncodeManifest. It signs the manifest if there is a key.
func EncodeSigned(m *Manifest, key ed25519.PrivateKey) ([]byte, error) {
	if err := validate(m); err != nil {
		return nil, fmt.Errorf("encode manifest of %s: %w", m.Meta.Key, err)
	}
	meta, err := json.Marshal(m.Meta)
	if err != nil {
		return nil, fmt.Errorf("encode manifest of %s: %w", m.Meta.Key, err)
	}
	b := append(make([]byte, 0, roomFor(m, meta)), manifestMagic...)
	b = append(b, 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(b[len(manifestMagic):], Version)
	if m.DataKey == nil {
		b = appendContent(appendSection(b, tagPacks, encodePacks(m.Packs)), m, meta)
	} else if b, err = appendSealed(b, m, meta); err != nil {
		return nil, fmt.Errorf("encode manifest of %s: %w", m.Meta.Key, err)
	}
	if key != nil {
		if b, err = appendSignature(b, key); err != nil {
			return nil, fmt.Errorf("sign manifest of %s: %w", m.Meta.Key, err)
		}
	}
	if len(meta) > maxMeta || len(b)+DigestSize > MaxManifest || countChunks(m.Files)*chunkRecord > maxTable {
		return nil, fmt.Errorf("encode manifest of %s: larger than the format allows (%d bytes, %d chunks, of which %d "+
			"surely fit): %w",
			m.Meta.Key, len(b), countChunks(m.Files), MaxChunks, ErrTooManyChunks)
	}
	digest := blake3.Sum256(b)
	return append(b, digest[:]...), nil
}

// roomFor returns how long an encoded manifest can get, so that its buffer need not grow.
func roomFor(m *Manifest, meta []byte) int {
	n := countChunks(m.Files)
	room := manifestPrefix + DigestSize + 9*sectionPrefix + signSize + 2*len(meta) + 256 + packRecord*len(m.Packs) +
		tableHeader + n*chunkRecord
	if m.Fingerprinted() {
		room += n * PrintSize
	}
	return room + len(m.Files)*(fileRecord+maxFileName)
}

// appendContent appends the sections that an encrypted manifest hides.
func appendContent(b []byte, m *Manifest, meta []byte) []byte {
	b = appendSection(b, tagMeta, meta)
	b = appendSection(b, tagKey, m.DigestKey[:])
	b = appendSection(b, tagFiles, encodeFiles(m.Files))
	b = appendChunks(b, m.Files)
	if !m.Fingerprinted() {
		return b
	}
	return appendPrints(b, m.Files)
}

// appendSealed appends the sections of an encrypted manifest. The last section authenticates everything before it.
func appendSealed(b []byte, m *Manifest, meta []byte) ([]byte, error) {
	name, err := json.Marshal(m.Meta.Key)
	if err != nil {
		return nil, err
	}
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	b = appendSection(b, tagName, name)
	b = appendSection(b, tagLock, append(m.DataKey.id[:], salt...))
	b = appendSection(b, tagPacks, encodePacks(m.Packs))
	content, before := appendContent(make([]byte, 0, roomFor(m, meta)), m, meta), len(b)
	b = appendHead(b, tagSeal, len(content)+SealSize)
	return m.DataKey.manifestAEAD(salt).Seal(b, zeroNonce, content, b[:before:before]), nil
}

// zeroNonce is the nonce for keys that encrypt only one thing.
var zeroNonce = make([]byte, 12)

// manifestAEAD is the cipher of the one manifest that has this salt.
func (l *DataKey) manifestAEAD(salt []byte) cipher.AEAD {
	return newAEAD(derive(useManifest, l.key, salt))
}

func appendSection(b []byte, tag string, data []byte) []byte {
	return append(appendHead(b, tag, len(data)), data...)
}

// appendHead appends the header of a section: its tag and the length of its data.
func appendHead(b []byte, tag string, size int) []byte {
	return binary.LittleEndian.AppendUint64(append(b, tag...), uint64(size))
}

func encodeFiles(files []File) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(files)))
	for _, f := range files {
		b = append(b, byte(len(f.Name)))
		b = append(b, f.Name...)
		b = binary.LittleEndian.AppendUint64(b, uint64(f.Size))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Chunks)))
	}
	return b
}

func encodePacks(packs []Pack) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(packs)))
	for _, p := range packs {
		b = append(b, p.ID[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(p.Size))
		b = append(b, p.Digest[:]...)
	}
	return b
}

func countChunks(files []File) (n int) {
	for _, f := range files {
		n += len(f.Chunks)
	}
	return n
}

// appendChunks writes the table column by column, which compresses better than row by row. A table that would shrink by
// more than maxExpansion is stored as it is, because a reader bounds its allocation by the size of its input.
func appendChunks(b []byte, files []File) []byte {
	table, n := tableOf(files)
	head := len(b)
	b = append(appendHead(b, tagChunks, 0), byte(CodecZstd))
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	body := len(b)
	b = encodeFrame(b, table)
	if frame := len(b) - body; frame >= len(table) || len(table) > maxExpansion*frame {
		b = append(b[:body], table...)
		b[head+sectionPrefix] = byte(CodecNone)
	}
	binary.LittleEndian.PutUint64(b[head+len(tagChunks):], uint64(len(b)-head-sectionPrefix))
	return b
}

// tableOf returns the raw table of n records.
func tableOf(files []File) (raw []byte, n int) {
	n = countChunks(files)
	raw = make([]byte, n*chunkRecord)
	c := columns(raw, n)
	i := 0
	for _, f := range files {
		for j := range f.Chunks {
			c.put(i, &f.Chunks[j])
			i++
		}
	}
	return raw, n
}

// appendPrints lists the chunks' fingerprints in the order of the table.
func appendPrints(b []byte, files []File) []byte {
	b = appendHead(b, tagPrints, PrintSize*countChunks(files))
	for _, f := range files {
		for _, p := range f.Prints {
			b = append(b, p[:]...)
		}
	}
	return b
}

// table is the raw chunk table, split into columns.
type table struct{ codec, raw, stored, pack, offset, digest []byte }

// columns splits a raw table of n records into columns. b has n*chunkRecord bytes.
func columns(b []byte, n int) table {
	next := func(width int) []byte {
		col := b[:n*width]
		b = b[n*width:]
		return col
	}
	return table{codec: next(1), raw: next(4), stored: next(4), pack: next(4), offset: next(4), digest: next(DigestSize)}
}

func (t *table) put(i int, c *Chunk) {
	t.codec[i] = byte(c.Codec)
	binary.LittleEndian.PutUint32(t.raw[4*i:], c.Raw)
	binary.LittleEndian.PutUint32(t.stored[4*i:], c.Stored)
	binary.LittleEndian.PutUint32(t.pack[4*i:], c.Pack)
	binary.LittleEndian.PutUint32(t.offset[4*i:], c.Offset)
	copy(t.digest[DigestSize*i:], c.Digest[:])
}

func (t *table) get(i int) Chunk {
	return Chunk{
		Codec:  Codec(t.codec[i]),
		Raw:    binary.LittleEndian.Uint32(t.raw[4*i:]),
		Stored: binary.LittleEndian.Uint32(t.stored[4*i:]),
		Pack:   binary.LittleEndian.Uint32(t.pack[4*i:]),
		Offset: binary.LittleEndian.Uint32(t.offset[4*i:]),
		Digest: [DigestSize]byte(t.digest[DigestSize*i:]),
	}
}
