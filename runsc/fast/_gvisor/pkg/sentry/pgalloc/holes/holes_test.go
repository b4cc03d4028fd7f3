package holes

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

const pages = 3000

// TestContains compares what is told of memory files, and of files on a disk, with what was written to them.
func TestContains(t *testing.T) {
	memory, err := unix.MemfdCreate("holes", 0)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	check(t, "memory file", os.NewFile(uintptr(memory), "memory"), true)
	check(t, "disk", disk, false)
}

// check writes every third page or so, some hundred in a row, and none of the last thousand. With find, most of these
// must be found.
func check(t *testing.T, name string, f *os.File, find bool) {
	if err := f.Truncate(pages * pageSize); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, pages*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	r := rand.New(rand.NewPCG(1, 2))
	written := make([]bool, pages)
	for i := range pages - 1000 {
		if r.IntN(3) == 0 || i > 1000 && i < 1300 {
			written[i] = true
			m[i*pageSize+r.IntN(pageSize)] = byte(1 + i%255)
		}
	}
	const offset = 3 * pageSize
	if _, err := unix.Seek(int(f.Fd()), offset, unix.SEEK_SET); err != nil {
		t.Fatal(err)
	}
	holes, found, atEnd := Open(int(f.Fd())), 0, 0
	for i, w := range written {
		if !holes.Contains(uint64(i) * pageSize) {
			continue
		}
		if w {
			t.Fatalf("%s: page %d was written, and is said to be a hole", name, i)
		}
		found++
		if i >= pages-1000 {
			atEnd++
		}
	}
	t.Logf("%s: %d holes in %d pages", name, found, pages)
	if err := holes.Close(); err != nil {
		t.Error(err)
	}
	if off, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_CUR); err != nil || off != offset {
		t.Errorf("%s: the offset is %d, %v, was %d", name, off, err, offset)
	}
	if find && atEnd < 900 {
		t.Errorf("%s: %d holes in the last 1000 pages, which are all holes", name, atEnd)
	}
}

// TestContainsWithoutAnswer asks of what has no ranges.
func TestContainsWithoutAnswer(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	holes := Open(int(r.Fd()))
	for off := range uint64(3) {
		if holes.Contains(off * pageSize) {
			t.Errorf("page %d of a pipe is a hole", off)
		}
	}
}
