package capture

import (
	"errors"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/memmap"

	"diapause.dev/api/snapshot"
)

// TestHostileSparseMemory: a sandbox that saves more pages than it had, of a memory file that is mostly hole, fails its
// save, and does not fill the node's disk.
func TestHostileSparseMemory(t *testing.T) {
	const size = 1 << 20
	fd := memfd(t, size/4096)
	a, err := NewArena(ArenaOptions{Limit: 8192, Most: 16384, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() }) // nothing is lost
	if err := a.Register(0, fd, size); err != nil {
		t.Fatal(err)
	}
	if err := a.Capture(batchOf(4096, 0, memmap.FileRange{Start: 0, End: 16384})); err != nil {
		t.Fatal(err)
	}
	err = a.Capture(batchOf(4096, 16384, memmap.FileRange{Start: 16384, End: size}))
	if !errors.Is(err, ErrOutgrown) || !errors.Is(a.Err(), ErrOutgrown) {
		t.Errorf("%v, %v", err, a.Err())
	}
	if n := a.Overflow(); n != 8192 {
		t.Errorf("%d bytes went to the disk", n)
	}
}

// TestHostileSmallFiles: image files that are kept whole keep to the memory that they are given.
func TestHostileSmallFiles(t *testing.T) {
	full := errors.New("full")
	var taken int64
	c := New(Options{Scope: snapshot.WholePod, Pages: Discard{}, Chunk: 65536, Take: func(n int64) error {
		if taken+n > 16<<20 {
			return full
		}
		taken += n
		return nil
	}})
	f := newSmallFile(c, nil)
	for size := 1 << 20; size <= 16<<20; size += 1 << 20 {
		if err := f.grow(size); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.grow(17 << 20); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	if cap(f.data) > 16<<20+1<<20 {
		t.Errorf("it has taken %d bytes", cap(f.data))
	}
}
