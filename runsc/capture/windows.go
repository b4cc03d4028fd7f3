package capture

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Windows returns how many windows of size bytes have anything allocated in a file. That is an upper bound for the
// number of chunks of its pages. It does not read holes.
func Windows(f *os.File, size int64) (n int64, err error) {
	fd, last := int(f.Fd()), int64(-1)
	for off := int64(0); ; {
		start, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return n, nil
		}
		if err == nil {
			off, err = unix.Seek(fd, start, unix.SEEK_HOLE)
		}
		if err != nil {
			return 0, fmt.Errorf("count pages of %s: %w", f.Name(), err)
		}
		first, end := max(start/size, last+1), (off-1)/size
		n += end - first + 1
		last = end
	}
}
