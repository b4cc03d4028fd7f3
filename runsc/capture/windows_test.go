package capture

import (
	"fmt"
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
		if n, err := Windows(fmt.Sprintf("/proc/self/fd/%d", fd), window); err != nil || n != c.want {
			t.Errorf("%v: %d windows, want %d; %v", c.pages, n, c.want, err)
		}
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
	if _, err := Windows("/proc/self/nothing", window); err == nil {
		t.Error("counted nothing")
	}
}
