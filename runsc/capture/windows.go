package capture

import (
	"fmt"
	"math"
	"os"
)

// Windows returns how many windows of size bytes have anything allocated in a file. That is an upper bound for the
// number of chunks of its pages. It does not read holes.
func Windows(f *os.File, size int64) (n int64, err error) {
	last := int64(-1)
	for r, err := range allocated(int(f.Fd()), math.MaxInt64) {
		if err != nil {
			return 0, fmt.Errorf("count pages of %s: %w", f.Name(), err)
		}
		first, end := max(int64(r.Start)/size, last+1), (int64(r.End)-1)/size
		n += end - first + 1
		last = end
	}
	return n, nil
}
