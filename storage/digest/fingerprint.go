package digest

import (
	"encoding/binary"

	"github.com/zeebo/blake3"
	"github.com/zeebo/xxh3"
)

// useFingerprint is the context in which BLAKE3 derives the seed of fingerprints from the key.
const useFingerprint = "diapause.dev store 1: fingerprints"

func fingerprintSeed(key [32]byte) uint64 {
	var seed [8]byte
	blake3.DeriveKey(useFingerprint, key[:], seed[:])
	return binary.LittleEndian.Uint64(seed[:])
}

// Fingerprint returns XXH3-128 of all parts in a row, big-endian, with a seed derived from the key. It distinguishes
// chunks at a quarter of a digest's cost: no two chunks have the same fingerprint by chance. It does not withstand a
// forger. With the key, one can make two chunks with the same fingerprint; without the key, one can make two that may
// have the same.
func (k *Keyed) Fingerprint(parts ...[]byte) [16]byte {
	if len(parts) == 1 {
		return xxh3.Hash128Seed(parts[0], k.seed).Bytes()
	}
	h := k.printer.Get().(*xxh3.Hasher)
	defer k.printer.Put(h)
	h.Reset()
	for _, p := range parts {
		_, _ = h.Write(p) // never fails
	}
	return h.Sum128().Bytes()
}
