// Package digest computes the digests of the store: keyed BLAKE3 for data that nobody may guess or forge, keyed XXH3 to
// recognise chunks, and XXH3 to find damage.
package digest

import (
	"encoding/binary"
	"math/bits"
	"sync"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/cpu"
	"lukechampine.com/blake3/guts"
)

// Keyed computes BLAKE3 digests and fingerprints under one key. It is safe for concurrent use.
type Keyed struct {
	words  [8]uint32
	seed   uint64 // of fingerprints
	hasher sync.Pool
}

// New returns the digests under a key.
func New(key [32]byte) *Keyed {
	k := &Keyed{seed: fingerprintSeed(key)}
	for i := range k.words {
		k.words[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	k.hasher.New = func() any {
		h, err := blake3.NewKeyed(key[:])
		if err != nil {
			panic(err) // the key has the right length
		}
		return h
	}
	return k
}

// wide reports whether 16 of BLAKE3's chunks can be hashed side by side. Only one of the two libraries does that, and
// then it is half as fast again as the other. Everywhere else the other is faster.
var wide = cpu.X86.HasAVX512F

// width is how many bytes are hashed side by side. Data shorter than leastWide does not gain by it.
const (
	width     = guts.MaxSIMD * guts.ChunkSize
	leastWide = 2 * width
)

// Sum returns the digest of data.
func (k *Keyed) Sum(data []byte) [32]byte {
	if wide && len(data) >= leastWide {
		return k.sumWide(data)
	}
	return k.sumNarrow(data)
}

func (k *Keyed) sumNarrow(data []byte) (sum [32]byte) {
	h := k.hasher.Get().(*blake3.Hasher)
	defer k.hasher.Put(h)
	h.Reset()
	_, _ = h.Write(data) // never fails
	h.Sum(sum[:0])
	return sum
}

func (k *Keyed) sumWide(data []byte) (sum [32]byte) {
	n := k.node(data, 0)
	n.Flags |= guts.FlagRoot
	for i, w := range guts.CompressNode(n) {
		if i < len(sum)/4 {
			binary.LittleEndian.PutUint32(sum[4*i:], w)
		}
	}
	return sum
}

// node returns the node of BLAKE3's tree above data. counter is the number of data's first chunk among all chunks.
func (k *Keyed) node(data []byte, counter uint64) guts.Node {
	if len(data) == width {
		return guts.CompressBuffer((*[width]byte)(data), width, &k.words, counter, guts.FlagKeyedHash)
	}
	if len(data) < width {
		var buffer [width]byte
		return guts.CompressBuffer(&buffer, copy(buffer[:], data), &k.words, counter, guts.FlagKeyedHash)
	}
	left := 1 << (bits.Len(uint(len(data)-1)) - 1) // the largest power of two below the length
	a, b := k.node(data[:left], counter), k.node(data[left:], counter+uint64(left/guts.ChunkSize))
	return guts.ParentNode(guts.ChainingValue(a), guts.ChainingValue(b), &k.words, guts.FlagKeyedHash)
}
