package storage

import "sync"

// Large, short-lived buffers that all stores of the process share.
var (
	packBuffers  = sync.Pool{New: func() any { return new([]byte) }}
	runBuffers   = sync.Pool{New: func() any { return new([]byte) }}
	chunkBuffers = sync.Pool{New: func() any { return new([]byte) }}
)

// getBuffer returns a buffer for the stored bytes of one chunk; its length is not specified.
func getBuffer() *[]byte { return chunkBuffers.Get().(*[]byte) }

// sized gives a buffer the length n, and allocates memory if the buffer has too little.
func sized(b *[]byte, n int) []byte {
	if cap(*b) < n {
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	return *b
}

func putBuffer(b *[]byte) {
	if b != nil {
		chunkBuffers.Put(b)
	}
}
