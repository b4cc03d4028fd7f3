package storage

import "bytes"

// zeros has the length of one comparison, which is short enough to stay in the nearest cache.
var zeros [4096]byte

// isZero reports whether all bytes are zero.
func isZero(b []byte) bool {
	for len(b) > len(zeros) {
		if !bytes.Equal(b[:len(zeros)], zeros[:]) {
			return false
		}
		b = b[len(zeros):]
	}
	return bytes.Equal(b, zeros[:len(b)])
}
