// Package digest computes the digests of the store: keyed BLAKE3 for data that nobody may guess or forge, keyed XXH3 to
// recognise chunks, and XXH3 to find damage.
package digest

import (
	"sync"

	"github.com/zeebo/blake3"
)

// Keyed computes BLAKE3 digests and fingerprints under one key. It is safe for concurrent use.
type Keyed struct {
	seed   uint64 // of fingerprints
	hasher sync.Pool
}

// New returns the digests under a key.
func New(key [32]byte) *Keyed {
	k := &Keyed{seed: fingerprintSeed(key)}
	k.hasher.New = func() any {
		h, err := blake3.NewKeyed(key[:])
		if err != nil {
			panic(err) // the key has the right length
		}
		return h
	}
	return k
}

// Sum returns the digest of data.
func (k *Keyed) Sum(data []byte) (sum [32]byte) {
	h := k.hasher.Get().(*blake3.Hasher)
	defer k.hasher.Put(h)
	h.Reset()
	_, _ = h.Write(data) // never fails
	h.Sum(sum[:0])
	return sum
}
