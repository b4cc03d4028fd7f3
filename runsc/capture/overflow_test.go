package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// newMemory returns a descriptor of a memory file, and its content.
func newMemory(t testing.TB, size int) (fd int, content []byte) {
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

// TestOverflow: what does not fit into memory reads back unchanged, in pieces of any size. If it is encrypted,
// the file does not show it.
func TestOverflow(t *testing.T) {
	const size = 4 << 20
	fd, content := newMemory(t, size)
	for _, encrypt := range []bool{false, true} {
		for _, limit := range []int64{0, 4096, 5001, size - 4096} {
			t.Run(fmt.Sprint(encrypt, limit), func(t *testing.T) {
				a := captured(t, fd, size, limit, encrypt)
				if got := a.Overflow(); got != size-limit {
					t.Errorf("%d bytes did not fit", got)
				}
				if bytes.Contains(onDisk(t, a.overflow), []byte("sixteen bytes")) == encrypt {
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
	return a
}

// onDisk returns the content of an overflow's file.
func onDisk(t *testing.T, o *overflow) []byte {
	t.Helper()
	b := make([]byte, o.end.Load())
	if _, err := o.file.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestOverflowUnreadable: a file that the disk does not return whole fails only this checkpoint, not the agent.
// If the file were mapped, this would be a SIGBUS, as EIO would be.
func TestOverflowUnreadable(t *testing.T) {
	const size = 1 << 20
	fd, _ := newMemory(t, size)
	for _, encrypt := range []bool{false, true} {
		a := captured(t, fd, size, 4096, encrypt)
		if err := a.overflow.file.Truncate(size / 2); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.Slice(size-4096, 4096); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("encrypted %v: read past the end of the file: %v", encrypt, err)
		}
		if _, _, err := a.Slice(4096, 4096); err != nil {
			t.Errorf("encrypted %v: what is there: %v", encrypt, err)
		}
		s, err := NewStream(t.TempDir(), encrypt)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Seal(), s.file.file.Truncate(0)); err != nil {
			t.Fatal(err)
		}
		if err := s.Read(make([]byte, 4096), 8192); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("encrypted %v: stream: %v", encrypt, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
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

// BenchmarkOverflow captures 64 MiB, none of which fits into memory.
func BenchmarkOverflow(b *testing.B) {
	const size = 64 << 20
	fd, _ := newMemory(b, size)
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

// BenchmarkOverflowRead reads 64 MiB, none of which fits into memory, in chunks of 64 KiB.
func BenchmarkOverflowRead(b *testing.B) {
	const size, chunk = 64 << 20, 64 << 10
	fd, _ := newMemory(b, size)
	for _, encrypt := range []bool{false, true} {
		b.Run(fmt.Sprintf("encrypt=%v", encrypt), func(b *testing.B) {
			a, err := NewArena(0, 0, b.TempDir(), encrypt, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer a.Close()
			if err := a.Register(0, fd, size); err != nil {
				b.Fatal(err)
			}
			captureAll(b, a, size)
			b.SetBytes(size)
			for b.Loop() {
				for off := int64(0); off < size; off += chunk {
					if _, _, err := a.Slice(off, chunk); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
