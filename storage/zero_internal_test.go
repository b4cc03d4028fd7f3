package storage

import "testing"

func TestIsZero(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 12288, MaxChunk} {
		b := make([]byte, size)
		if !isZero(b) {
			t.Errorf("%d zeros", size)
		}
		for _, at := range []int{0, size / 2, size - 1} {
			if size == 0 {
				continue
			}
			b[at] = 1
			if isZero(b) {
				t.Errorf("%d bytes with a one at %d", size, at)
			}
			b[at] = 0
		}
	}
}
