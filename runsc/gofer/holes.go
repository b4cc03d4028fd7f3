package gofer

import (
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// looks is how often a page that seems to be missing is looked for: it may be on its way to the swap device.
const looks = 3

// allocated refuses ranges of a file in memory if the first n bytes of them have a hole. A sidecar has allocated what
// it reads into (allocate.go in runsc/sidecar), so that the pod is charged for it. SEEK_HOLE cannot tell: for it, pages
// that are allocated and not filled are holes. Kernels before 6.5 cannot tell at all; then nothing is refused.
//
// A sidecar can make a hole between the look and the write. So this bounds nothing: Account does.
func allocated(fd int, ranges []memmap.FileRange, n int64) error {
	for _, r := range ranges {
		length := min(r.Length(), uint64(n))
		if length == 0 {
			return nil
		}
		n -= int64(length)
		if hole(fd, r.Start, length) {
			return fmt.Errorf("%w: it has not allocated the memory at %v that it reads into", ErrBreach, r)
		}
	}
	return nil
}

// hole reports whether a range of a file in memory lacks a page.
func hole(fd int, off, length uint64) bool {
	want := (off+length-1)/hostarch.PageSize - off/hostarch.PageSize + 1
	for range looks {
		var st unix.Cachestat_t
		err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: off, Len: length}, &st, 0)
		if err != nil || st.Cache+st.Evicted >= want { // evicted: it is on the swap device
			return false
		}
	}
	return true
}
