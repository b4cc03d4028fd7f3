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

// Fingerprint returns XXH3-128 of data, big-endian, with a seed derived from the key. It distinguishes chunks at a
// quarter of a digest's cost: no two chunks have the same fingerprint by chance. It does not withstand a forger. With
// the key, one can make two chunks with the same fingerprint; without the key, one can make two that may have the same.
func (k *Keyed) Fingerprint(data []byte) [16]byte { return xxh3.Hash128Seed(data, k.seed).Bytes() }
