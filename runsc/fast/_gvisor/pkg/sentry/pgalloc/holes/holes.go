// Package holes finds out which pages of a memory file have no memory.
package holes

import (
	"math"

	"golang.org/x/sys/unix"
)

// File answers for one file, whose pages are asked for in the order of their offsets. Nothing may write to the file
// meanwhile.
//
// The host knows the ranges of a file that have memory, or had it and are swapped out. Reading a page that has none gives
// it some, which then has to be taken away again. That takes a hundred times longer than to ask.
type File struct {
	FD int

	// data and end are the next range with data. Up to data, nothing is there.
	data, end int64

	// unknown is set if the file system cannot say.
	unknown bool
}

// Contains reports whether the page at off is known to have no memory. If so it is zero.
func (f *File) Contains(off uint64) bool {
	if !f.unknown && int64(off) >= f.end {
		f.next(int64(off))
	}
	return !f.unknown && int64(off) < f.data
}

// next looks for the first range with data that ends behind off.
func (f *File) next(off int64) {
	data, err := unix.Seek(f.FD, off, unix.SEEK_DATA)
	if err == unix.ENXIO { // there is none
		f.data, f.end = math.MaxInt64, math.MaxInt64
		return
	}
	end := int64(0)
	if err == nil {
		end, err = unix.Seek(f.FD, data, unix.SEEK_HOLE)
	}
	f.data, f.end, f.unknown = data, end, err != nil
}
