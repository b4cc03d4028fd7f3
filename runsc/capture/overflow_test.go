package capture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// memoryFile returns a descriptor of a memory file and what is in it.
func memoryFile(t testing.TB, size int) (fd int, content []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // nothing is lost
	content = bytes.Repeat([]byte("sixteen bytes..."), size/16)
	for i := 0; i < len(content); i += 4096 {
		content[i] = byte(i >> 12)
	}
	if _, err := unix.Pwrite(fd, content, 0); err != nil {
		t.Fatal(err)
	}
	return fd, content
}

// TestOverflow: what does not fit into memory comes back as it was, in whatever pieces it is asked
// for, and if it is encrypted stands in the file so that nobody can read it.
func TestOverflow(t *testing.T) {
	const size = 4 << 20
	fd, content := memoryFile(t, size)
	for _, encrypt := range []bool{false, true} {
		for _, limit := range []int64{0, 4096, 5001, size - 4096} {
			t.Run(fmt.Sprint(encrypt, limit), func(t *testing.T) {
				a := captured(t, fd, size, limit, encrypt)
				if got := a.Overflow(); got != size-limit {
					t.Errorf("%d bytes did not fit", got)
				}
				if bytes.Contains(a.overflow.mapped, []byte("sixteen bytes")) == encrypt {
					t.Errorf("encrypted: %v", !encrypt)
				}
				wantSlices(t, a, limit, content)
			})
		}
	}
}

// captured returns an arena that has taken a memory file of size bytes.
func captured(t *testing.T, fd int, size, limit int64, encrypt bool) *Arena {
	t.Helper()
	a, err := NewArena(0, limit, t.TempDir(), encrypt, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() }) // nothing is lost
	if err := a.Register(0, fd, uint64(size)); err != nil {
		t.Fatal(err)
	}
	captureParts(t, a, uint64(size))
	if err := a.Seal(); err != nil {
		t.Fatal(err)
	}
	return a
}

func wantSlices(t *testing.T, a *Arena, limit int64, content []byte) {
	t.Helper()
	size := int64(len(content))
	for range 200 {
		off := rand.Int64N(size)
		n := rand.Int64N(min(size-off, 100_000) + 1)
		got, lasting, err := a.Slice(off, n)
		if err != nil || !bytes.Equal(got, content[off:off+n]) || lasting != (off+n <= limit) {
			t.Fatalf("bytes %d+%d: lasting %v, error %v, or others than captured", off, n, lasting, err)
		}
	}
	if _, _, err := a.Slice(size-1, 2); err == nil {
		t.Error("bytes that were not captured")
	}
}

// captureParts captures a memory file of size bytes by four workers, in pieces of three pages.
func captureParts(t testing.TB, a *Arena, size uint64) {
	t.Helper()
	const piece = 3 * 4096
	var group sync.WaitGroup
	for worker := range uint64(4) {
		group.Go(func() {
			for off := worker * piece; off < size; off += 4 * piece {
				if err := a.Capture(0, []memmap.FileRange{{Start: off, End: min(off+piece, size)}}, int64(off)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkOverflow captures 64 MiB of which nothing fits.
func BenchmarkOverflow(b *testing.B) {
	const size = 64 << 20
	fd, _ := memoryFile(b, size)
	for _, encrypt := range []bool{false, true} {
		b.Run(fmt.Sprintf("encrypt=%v", encrypt), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				a, err := NewArena(0, 0, b.TempDir(), encrypt, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := a.Register(0, fd, size); err != nil {
					b.Fatal(err)
				}
				captureAll(b, a, size)
				if err := a.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
