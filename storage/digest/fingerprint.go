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

// Fingerprint returns XXH3-128 of data, big-endian, with a seed derived from the key. It tells a chunk
// from others at a fraction of a digest's cost: two that are not the same have one fingerprint neither
// by chance nor by the intent of somebody who does not know the key. Who knows it can make such two.
func (k *Keyed) Fingerprint(data []byte) [16]byte { return xxh3.Hash128Seed(data, k.seed).Bytes() }
