package capture

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// memfd returns a memory file with the given number of pages. Only the pages in data are allocated.
func memfd(t *testing.T, pages int, data ...int) (fd int) {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(pages*pageSize)); err != nil {
		t.Fatal(err)
	}
	for _, i := range data {
		if _, err := unix.Pwrite(fd, bytes.Repeat([]byte{byte(i + 1)}, pageSize), int64(i*pageSize)); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

func blocks(t *testing.T, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks
}

// TestMapping captures through a mapping and beyond its end. Holes stay holes.
func TestMapping(t *testing.T) {
	fd := memfd(t, 8, 1, 2, 5)
	before := blocks(t, fd)
	m, err := Map(opened(t, fd))
	if err != nil {
		t.Fatal(err)
	}
	if after := blocks(t, fd); after != before {
		t.Errorf("mapping allocated: %d blocks, were %d", after, before)
	}
	a, err := NewArena(ArenaOptions{Limit: 1 << 20, Dir: t.TempDir(), Mapping: m})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := unix.Ftruncate(fd, 16*pageSize); err != nil { // the sandbox grows meanwhile
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, bytes.Repeat([]byte{99}, pageSize), 12*pageSize); err != nil {
		t.Fatal(err)
	}
	if err := a.Register(0, fd, 16*pageSize); err != nil {
		t.Fatal(err)
	}
	ranges := []memmap.FileRange{
		{Start: pageSize, End: 3 * pageSize},
		{Start: 5 * pageSize, End: 6 * pageSize},
		{Start: 12 * pageSize, End: 13 * pageSize},
	}
	b := batchOf(16*pageSize, 0, ranges...)
	if err := a.Capture(b); err != nil {
		t.Fatal(err)
	}
	got, _, err := a.Copied(b.Runs[0])
	if err != nil || len(b.Runs) != 1 {
		t.Fatalf("%d runs, error %v", len(b.Runs), err)
	}
	for i, want := range []byte{2, 3, 6, 99} {
		if !bytes.Equal(got[i*pageSize:(i+1)*pageSize], bytes.Repeat([]byte{want}, pageSize)) {
			t.Errorf("page %d is not that of %d", i, want)
		}
	}
}

// TestTruncatedMemoryFile has a sandbox truncate its memory while the agent copies it.
func TestTruncatedMemoryFile(t *testing.T) {
	for _, mapped := range []bool{true, false} {
		fd := memfd(t, 4, 0, 1, 2, 3)
		var m *Mapping
		if mapped {
			var err error
			if m, err = Map(opened(t, fd)); err != nil {
				t.Fatal(err)
			}
		}
		a, err := NewArena(ArenaOptions{Limit: 1 << 20, Dir: t.TempDir(), Mapping: m})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if err := a.Register(0, fd, 4*pageSize); err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, pageSize); err != nil {
			t.Fatal(err)
		}
		if err := a.Capture(batchOf(65536, 0, memmap.FileRange{Start: 0, End: 4 * pageSize})); err == nil || a.Err() == nil {
			t.Errorf("mapped %v: captured what is not there", mapped)
		}
	}
}
