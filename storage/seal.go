package storage

import (
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"sync"

	"diapause.dev/storage/digest"
)

// packAEAD is the cipher of one pack. Its key is used for this pack alone, so a chunk's offset suffices as its nonce.
func (l *lock) packAEAD(id PackID) cipher.AEAD { return newAEAD(derive(usePack, l.key, id[:])) }

// chunkNonce returns the nonce of the chunk at an offset of its pack.
func chunkNonce(offset uint32) []byte {
	return binary.LittleEndian.AppendUint32(make([]byte, 8, 12), offset)
}

// chunkData is what is authenticated with a chunk: its pack and its offset.
func chunkData(id PackID, offset uint32) []byte {
	return binary.LittleEndian.AppendUint32(id[:], offset)
}

// sealChunk encrypts the chunk at an offset of its pack in place. box must have room for the tag after the chunk.
func sealChunk(a cipher.AEAD, id PackID, offset uint32, box []byte) {
	a.Seal(box[:0], chunkNonce(offset), box, chunkData(id, offset))
}

// opener turns stored bytes of a manifest's chunks into raw ones, and checks them. Safe for
// concurrent use.
type opener struct {
	m       *Manifest
	digests *digest.Keyed

	mu    sync.Mutex
	aeads map[uint32]cipher.AEAD // of encrypted packs
}

func newOpener(m *Manifest) *opener {
	return &opener{m: m, digests: digest.New(m.DigestKey), aeads: map[uint32]cipher.AEAD{}}
}

func (o *opener) aead(pack uint32) cipher.AEAD {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, ok := o.aeads[pack]
	if !ok {
		a = o.m.lock.packAEAD(o.m.Packs[pack].ID)
		o.aeads[pack] = a
	}
	return a
}

// unpack fills dst, of the chunk's raw length, with the raw bytes of a chunk.
func (o *opener) unpack(c *Chunk, dst, stored []byte) error {
	if o.m.lock == nil {
		return o.expand(c, dst, stored)
	}
	a, id := o.aead(c.Pack), o.m.Packs[c.Pack].ID
	if c.Codec == CodecNone {
		if _, err := a.Open(dst[:0:len(dst)], chunkNonce(c.Offset), stored, chunkData(id, c.Offset)); err != nil {
			return o.corrupt(c, "chunk does not decrypt", err)
		}
		return o.check(c, dst)
	}
	buffer := getBuffer()
	defer putBuffer(buffer)
	plain, err := a.Open(sized(buffer, len(stored))[:0], chunkNonce(c.Offset), stored, chunkData(id, c.Offset))
	if err != nil {
		return o.corrupt(c, "chunk does not decrypt", err)
	}
	return o.expand(c, dst, plain)
}

func (o *opener) expand(c *Chunk, dst, stored []byte) error {
	if err := decompress(c.Codec, dst, stored); err != nil {
		return o.corrupt(c, "chunk does not decode", err)
	}
	return o.check(c, dst)
}

func (o *opener) check(c *Chunk, raw []byte) error {
	if o.digests.Sum(raw) != c.Digest {
		return o.corrupt(c, fmt.Sprintf("chunk %x: digest mismatch", c.Digest[:8]), nil)
	}
	return nil
}

func (o *opener) corrupt(c *Chunk, reason string, err error) error {
	return &CorruptError{Object: o.m.packObject(c.Pack), Key: o.m.Meta.Key, Reason: reason, Err: err}
}
