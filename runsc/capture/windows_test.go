package capture

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWindows counts the allocated windows of a sparse file. What is allocated in one window counts once.
func TestWindows(t *testing.T) {
	const window = 64 << 10
	for _, c := range []struct {
		pages []int64 // offsets in windows and pages
		want  int64
	}{
		{nil, 0},
		{[]int64{0}, 1},
		{[]int64{0, 8 << 10, window - 4096}, 1},
		{[]int64{0, window, 5*window + 4096, 5*window + 3*4096}, 3},
		{[]int64{window - 4096, window, 1 << 40}, 3},
	} {
		fd, err := unix.MemfdCreate("windows", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range c.pages {
			if _, err := unix.Pwrite(fd, []byte("x"), off); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := Windows(opened(t, fd), window); err != nil || n != c.want {
			t.Errorf("%v: %d windows, want %d; %v", c.pages, n, c.want, err)
		}
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
	closed := opened(t, memfd(t, 1))
	closed.Close()
	if _, err := Windows(closed, window); err == nil {
		t.Error("counted nothing")
	}
}

// opened opens the file of a descriptor anew.
func opened(t testing.TB, fd int) *os.File {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
