package compressio

import "bufio"

// Buffer returns the buffer that Read reads from, or nil if there are hashes between the data in it.
func (r *SimpleReader) Buffer() *bufio.Reader {
	if r.h != nil {
		return nil
	}
	return r.bin
}
