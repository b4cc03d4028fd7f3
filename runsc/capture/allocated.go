package capture

import (
	"errors"
	"iter"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// allocated yields what is allocated in the first size bytes of a file, in order. If it cannot be found out, the last
// thing that it yields is an error.
func allocated(fd int, size int64) iter.Seq2[memmap.FileRange, error] {
	return func(yield func(memmap.FileRange, error) bool) {
		for off := int64(0); off < size; {
			start, err := unix.Seek(fd, off, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) || err == nil && start >= size {
				return
			}
			if err == nil {
				off, err = unix.Seek(fd, start, unix.SEEK_HOLE)
			}
			if err != nil {
				yield(memmap.FileRange{}, err)
				return
			}
			off = min(off, size)
			if !yield(memmap.FileRange{Start: uint64(start), End: uint64(off)}, nil) {
				return
			}
		}
	}
}
