// Package holes finds out which pages of a memory file have no memory.
package holes

import (
	"math"

	"golang.org/x/sys/unix"
)

// File answers for one file, whose pages are asked for in the order of their offsets. Nothing may write to the file, or
// use its offset, meanwhile.
//
// The host knows which pages of a file have memory, or had it and are swapped out. Reading a page that has none gives
// it some, which then has to be taken away again. That takes far longer than to ask.
type File struct {
	fd int

	// was is the file's offset before, or negative if it has none.
	was int64

	// Up to data, nothing is there. From there to end is at least one page with data. The others may be holes.
	data, end int64

	// window is how much was between data and end, in bytes.
	window int64

	// unknown is set if the file system cannot say.
	unknown bool
}

const (
	pageSize = 4096
	// maxWindow is how much is taken for data without asking, at most, in bytes.
	maxWindow = 2 << 20
)

// Open returns a File for an open file. Call its Close before the file's offset is used.
func Open(fd int) *File {
	was, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil {
		was = -1
	}
	return &File{fd: fd, was: was}
}

// Close puts the file's offset back.
func (f *File) Close() error {
	if f.was < 0 {
		return nil
	}
	_, err := unix.Seek(f.fd, f.was, unix.SEEK_SET)
	return err
}

// Contains reports whether the page at off is known to have no memory. If so it is zero.
func (f *File) Contains(off uint64) bool {
	if !f.unknown && int64(off) >= f.end {
		f.next(int64(off))
	}
	return !f.unknown && int64(off) < f.data
}

// next looks for the first data at off or behind. Where there is data, there is often more: the longer it lasts, the
// more is taken for data at once. To look for its end would take time for all of it, however little is asked for.
func (f *File) next(off int64) {
	data, err := unix.Seek(f.fd, off, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO: // there is none
		f.data, f.end = math.MaxInt64, math.MaxInt64
		return
	case err != nil:
		f.unknown = true
		return
	case data == off:
		f.window = min(max(2*f.window, pageSize), maxWindow)
	default:
		f.window = pageSize
	}
	f.data = data &^ (pageSize - 1) // blocks of a disk may be smaller than a page
	f.end = f.data + f.window
}
