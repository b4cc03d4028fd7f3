package digest

import "github.com/zeebo/xxh3"

// Damage sums up bytes so that damage to them is found. It does not find forgery.
type Damage struct{ hasher xxh3.Hasher }

// Add adds bytes to the sum.
func (d *Damage) Add(data []byte) { _, _ = d.hasher.Write(data) } // never fails

// Sum returns XXH3-128 of all added bytes, big-endian as it is usually written.
func (d *Damage) Sum() [16]byte { return d.hasher.Sum128().Bytes() }

// OfWhole returns the Sum of a Damage to which only data was added.
func OfWhole(data []byte) [16]byte { return xxh3.Hash128(data).Bytes() }
