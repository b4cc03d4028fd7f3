package sidecar

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

const page = 4096

// memoryFile returns a memory file with the given number of pages.
func memoryFile(t *testing.T, pages int64) *dest {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, pages*page); err != nil {
		t.Fatal(err)
	}
	return &dest{fd: fd, size: uint64(pages * page), onDisk: false}
}

// sizes returns a file's size and how much of it is allocated, in pages.
func (d *dest) sizes(t *testing.T) (size, allocated int64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Size / page, st.Blocks * 512 / page
}

func TestAllocateTakesWhatTheReadFills(t *testing.T) {
	d := memoryFile(t, 16)
	ranges := []memmap.FileRange{{Start: page, End: 3 * page}, {Start: 8 * page, End: 9 * page}}
	if err := d.allocate(ranges, stateio.LocalClientRanges{}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if size, allocated := d.sizes(t); size != 16 || allocated != 3 {
		t.Errorf("%d of %d pages are allocated, want 3 of 16", allocated, size)
	}
}

// TestAllocateLeavesContents allocates what has been written already, as when a read is repeated.
func TestAllocateLeavesContents(t *testing.T) {
	for name, d := range map[string]*dest{"in memory": memoryFile(t, 4), "on disk": fileOnDisk(t, 4)} {
		t.Run(name, func(t *testing.T) {
			if _, err := unix.Pwrite(d.fd, []byte("kept"), page); err != nil {
				t.Fatal(err)
			}
			r := memmap.FileRange{Start: 0, End: 4 * page}
			if err := d.allocate([]memmap.FileRange{r}, d.mapped(t, r), slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 4)
			if _, err := unix.Pread(d.fd, got, page); err != nil || string(got) != "kept" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestAllocateBringsFilesIntoThePageCache: the kernel charges a file on disk by its page cache.
func TestAllocateBringsFilesIntoThePageCache(t *testing.T) {
	d := fileOnDisk(t, 16)
	r := memmap.FileRange{Start: 4 * page, End: 12 * page}
	m := d.mapped(t, r)
	if err := d.allocate([]memmap.FileRange{r}, m, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	present, err := resident(m.Mapping)
	if err != nil || present != 8 {
		t.Errorf("%d pages are in the page cache, %v, want 8", present, err)
	}
}

// TestAllocateRefusesHostileRanges: ranges outside of the file, and reads that are too large.
func TestAllocateRefusesHostileRanges(t *testing.T) {
	for name, ranges := range map[string][]memmap.FileRange{
		"empty":                 {{Start: page, End: page}},
		"the end first":         {{Start: 2 * page, End: page}},
		"past the end":          {{Start: 3 * page, End: 5 * page}},
		"overflow":              {{Start: math.MaxUint64 - page + 1, End: math.MaxUint64}},
		"negative as an offset": {{Start: 1 << 63, End: 1<<63 + page}},
	} {
		t.Run(name, func(t *testing.T) {
			d := memoryFile(t, 4)
			if err := d.check(ranges); !errors.Is(err, unix.EINVAL) {
				t.Errorf("check: %v", err)
			}
			if err := d.allocate(ranges, stateio.LocalClientRanges{}, slog.New(slog.DiscardHandler)); err != nil {
				t.Errorf("the read is not left to the agent: %v", err)
			}
			if size, allocated := d.sizes(t); size != 4 || allocated != 0 {
				t.Errorf("%d of %d pages are allocated", allocated, size)
			}
		})
	}
	d := memoryFile(t, 1<<10)
	half := memmap.FileRange{Start: 0, End: MaxRead/2 + page}
	if err := d.check([]memmap.FileRange{half, half}); err == nil {
		t.Error("more than a read may have is allocated")
	}
	d.size = math.MaxUint64 // a lie
	if err := d.check([]memmap.FileRange{{Start: maxDest, End: maxDest + page}}); err == nil {
		t.Error("past the end of any memory file is allocated")
	}
}

// TestAllocateNeverGrowsAFile, even if the sentry overstates its size.
func TestAllocateNeverGrowsAFile(t *testing.T) {
	d := memoryFile(t, 1)
	d.size = 8 * page
	if err := d.allocate([]memmap.FileRange{{Start: 4 * page, End: 5 * page}}, stateio.LocalClientRanges{},
		slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if size, _ := d.sizes(t); size != 1 {
		t.Errorf("%d pages, want 1", size)
	}
}

// TestAllocateGoesOnWithoutThePages if they cannot be allocated: the agent's write says what is wrong.
func TestAllocateGoesOnWithoutThePages(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	r := []memmap.FileRange{{Start: 0, End: page}}
	for _, disk := range []bool{false, true} {
		d := &dest{fd: fds[1], size: page, onDisk: disk}
		if err := d.allocate(r, stateio.LocalClientMapping([]byte{0}), slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("on disk %v: %v", disk, err)
		}
	}
}

// fileOnDisk returns a file on disk with the given number of pages.
func fileOnDisk(t *testing.T, pages int64) *dest {
	t.Helper()
	f, err := os.CreateTemp(".", ".allocate") // the directory for temporary files may be in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); os.Remove(f.Name()) })
	if err := f.Truncate(pages * page); err != nil {
		t.Fatal(err)
	}
	return &dest{fd: int(f.Fd()), size: uint64(pages * page), onDisk: true}
}

// mapped maps a range of a file.
func (d *dest) mapped(t *testing.T, r memmap.FileRange) stateio.LocalClientRanges {
	t.Helper()
	m, err := unix.Mmap(d.fd, int64(r.Start), int(r.Length()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	return stateio.LocalClientMapping(m)
}

// resident counts the pages of a mapping that are in memory.
func resident(m []byte) (n int, err error) {
	stat := make([]byte, len(m)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)),
		uintptr(unsafe.Pointer(&stat[0])))
	if errno != 0 {
		return 0, errno
	}
	for _, p := range stat {
		n += int(p & 1)
	}
	return n, nil
}
