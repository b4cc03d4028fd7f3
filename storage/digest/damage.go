package digest

import "github.com/zeebo/xxh3"

// Damage sums up bytes so that damage to them is found; not so that forgery is.
type Damage struct{ hasher xxh3.Hasher }

// Add takes in more bytes.
func (d *Damage) Add(data []byte) { _, _ = d.hasher.Write(data) } // never fails

// Sum returns XXH3-128 of all bytes taken in, big-endian as it is usually written.
func (d *Damage) Sum() [16]byte { return d.hasher.Sum128().Bytes() }

// OfWhole is the Sum of a Damage that has taken in data alone.
func OfWhole(data []byte) [16]byte { return xxh3.Hash128(data).Bytes() }
