package format

import (
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"sync"

	"diapause.dev/storage/digest"
)

// PackAEAD is the cipher of one pack. Its key is used for this pack alone, so a chunk's offset suffices as its nonce.
func (l *DataKey) PackAEAD(id PackID) cipher.AEAD { return newAEAD(derive(usePack, l.key, id[:])) }

// chunkNonce returns the nonce of the chunk at an offset of its pack.
func chunkNonce(offset uint32) []byte {
	return binary.LittleEndian.AppendUint32(make([]byte, 8, 12), offset)
}

// chunkData is what is authenticated with a chunk: its pack and its offset.
func chunkData(id PackID, offset uint32) []byte {
	return binary.LittleEndian.AppendUint32(id[:], offset)
}

// SealChunk encrypts the chunk at an offset of its pack in place. box must have room for the tag after the chunk.
func SealChunk(a cipher.AEAD, id PackID, offset uint32, box []byte) {
	a.Seal(box[:0], chunkNonce(offset), box, chunkData(id, offset))
}

// plainBuffers hold chunks that are decrypted and not decompressed yet.
var plainBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Opener turns stored bytes of a manifest's chunks into raw ones, and checks them. Safe for
// concurrent use.
type Opener struct {
	m       *Manifest
	digests *digest.Keyed

	mu    sync.Mutex
	aeads map[uint32]cipher.AEAD // of encrypted packs
}

// NewOpener returns the Opener of a manifest's chunks.
func NewOpener(m *Manifest) *Opener {
	return &Opener{m: m, digests: digest.New(m.DigestKey), aeads: map[uint32]cipher.AEAD{}}
}

func (o *Opener) aead(pack uint32) cipher.AEAD {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, ok := o.aeads[pack]
	if !ok {
		a = o.m.DataKey.PackAEAD(o.m.Packs[pack].ID)
		o.aeads[pack] = a
	}
	return a
}

// Unpack fills dst, of the chunk's raw length, with the raw bytes of a chunk.
func (o *Opener) Unpack(c *Chunk, dst, stored []byte) error {
	if o.m.DataKey == nil {
		return o.expand(c, dst, stored)
	}
	a, id := o.aead(c.Pack), o.m.Packs[c.Pack].ID
	if c.Codec == CodecNone {
		if _, err := a.Open(dst[:0:len(dst)], chunkNonce(c.Offset), stored, chunkData(id, c.Offset)); err != nil {
			return o.corrupt(c, "chunk does not decrypt", err)
		}
		return o.Check(c, dst)
	}
	buffer := plainBuffers.Get().(*[]byte)
	defer plainBuffers.Put(buffer)
	if cap(*buffer) < len(stored) {
		*buffer = make([]byte, 0, len(stored))
	}
	plain, err := a.Open((*buffer)[:0], chunkNonce(c.Offset), stored, chunkData(id, c.Offset))
	if err != nil {
		return o.corrupt(c, "chunk does not decrypt", err)
	}
	return o.expand(c, dst, plain)
}

func (o *Opener) expand(c *Chunk, dst, stored []byte) error {
	if err := Decompress(c.Codec, dst, stored); err != nil {
		return o.corrupt(c, "chunk does not decode", err)
	}
	return o.Check(c, dst)
}

// Check returns a CorruptError unless raw has a chunk's digest.
func (o *Opener) Check(c *Chunk, raw []byte) error {
	if o.digests.Sum(raw) != c.Digest {
		return o.corrupt(c, fmt.Sprintf("chunk %x: digest mismatch", c.Digest[:8]), nil)
	}
	return nil
}

func (o *Opener) corrupt(c *Chunk, reason string, err error) error {
	return &CorruptError{Object: o.m.PackObject(c.Pack), Key: o.m.Meta.Key, Reason: reason, Err: err}
}
