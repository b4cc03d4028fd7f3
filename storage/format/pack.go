package format

import (
	"bytes"
	"crypto/rand"

	"diapause.dev/storage/digest"
)

// PackHeaderSize is the length of a pack's header: 8 bytes of magic, the pack's id, 8 zero bytes.
const PackHeaderSize = 32

var packMagic = [8]byte{'D', 'I', 'A', 'P', 'A', 'C', 'K', Version}

// NewPackID returns a random id.
func NewPackID() (id PackID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// PackHeader returns the first bytes of the pack of that id.
func PackHeader(id PackID) []byte {
	h := make([]byte, PackHeaderSize)
	copy(h, packMagic[:])
	copy(h[len(packMagic):], id[:])
	return h
}

// CheckPack checks a whole pack against its entry in a manifest. The reason is empty if the pack is sound.
func CheckPack(p Pack, data []byte) (reason string) {
	switch {
	case int64(len(data)) != p.Size:
		return "wrong size"
	case !bytes.HasPrefix(data, PackHeader(p.ID)):
		return "not this pack's header"
	case digest.OfWhole(data) != p.Digest:
		return "pack digest mismatch"
	}
	return ""
}
