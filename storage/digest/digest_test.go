package digest

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// input returns the input of BLAKE3's official test vectors: 0 to 250, again and again.
func input(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

// TestVectors checks some of BLAKE3's own test vectors: keyed hashes, the first 32 bytes.
func TestVectors(t *testing.T) {
	k := New([32]byte([]byte("whats the Elvish word for friend")))
	for n, want := range map[int]string{
		0:      "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26",
		1024:   "75c46f6f3d9eb4f55ecaaee480db732e6c2105546f1e675003687c31719c7ba4",
		31744:  "efa53b389ab67c593dba624d898d0f7353ab99e4ac9d42302ee64cbf9939a419",
		102400: "1c35d1a5811083fd7119f5d5d1ba027b4d01c0c6c49fb6ff2cf75393ea5db4a7",
	} {
		if got := k.Sum(input(n)); hex.EncodeToString(got[:]) != want {
			t.Errorf("of %d bytes: %x, want %s", n, got, want)
		}
	}
}

func TestDamage(t *testing.T) {
	data := input(100_000)
	want := OfWhole(data)
	var d Damage
	for _, part := range [][]byte{data[:1], data[1:1], data[1:70_000], data[70_000:]} {
		d.Add(part)
	}
	if d.Sum() != want {
		t.Error("the sum depends on how it was taken in")
	}
	for range 1000 {
		bad := bytes.Clone(data)
		bad[rand.IntN(len(bad))] ^= 1 << rand.IntN(8)
		if OfWhole(bad) == want {
			t.Fatal("a flipped bit is not seen")
		}
	}
}

// TestFingerprint: a fingerprint is part of the format, and depends on the key.
func TestFingerprint(t *testing.T) {
	k := New([32]byte([]byte("whats the Elvish word for friend")))
	for n, want := range map[int]string{
		0:     "7fd27b278b003fc80a7f6bcfb79aed87",
		1024:  "6b0a0a5be159a106010838bb552c4aa2",
		65536: "1e6421bb4f5ccbfd92cada569c2cec0d",
	} {
		if got := k.Fingerprint(input(n)); hex.EncodeToString(got[:]) != want {
			t.Errorf("of %d bytes: %x, want %s", n, got, want)
		}
	}
	if New([32]byte{1}).Fingerprint(input(9)) == New([32]byte{2}).Fingerprint(input(9)) {
		t.Error("two keys, one fingerprint")
	}
}

func BenchmarkSum(b *testing.B) {
	k, data := New([32]byte{}), input(64<<10)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		k.Sum(data)
	}
}
