package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	const size = 340 * piece
	fd, content := newMemory(t, size)
	for _, encrypt := range []bool{false, true} {
		for limit, inMemory := range map[int64]int64{
			0: 0, piece - 1: 0, piece: piece, piece + 5001: piece, size / 2: size / 2 / piece * piece,
		} {
			t.Run(fmt.Sprint(encrypt, limit), func(t *testing.T) {
				a, runs := captured(t, fd, size, limit, encrypt)
				if got := a.Overflow(); got != size-inMemory {
					t.Errorf("%d bytes did not fit", got)
				}
				if bytes.Contains(onDisk(t, a.overflow), []byte("sixteen bytes")) == encrypt {
					t.Errorf("encrypted: %v", !encrypt)
				}
				wantSlices(t, a, runs, limit, content)
			})
		}
	}
}

// captured returns an arena that has taken a memory file of size bytes, and the runs.
func captured(t *testing.T, fd int, size, limit int64, encrypt bool) (*Arena, []Run) {
	t.Helper()
	a, err := NewArena(ArenaOptions{Limit: limit, Dir: t.TempDir(), Encrypt: encrypt})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() }) // nothing is lost
	if err := a.Register(0, fd, uint64(size)); err != nil {
		t.Fatal(err)
	}
	return a, captureParts(t, a, uint64(size))
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
		a, runs := captured(t, fd, size, piece, encrypt)
		if err := a.overflow.file.Truncate(size / 2); err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			_, _, err := a.Copied(r)
			if there := r.At+r.Len <= piece+size/2; there != (err == nil) || !there && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("encrypted %v: %+v: %v", encrypt, r, err)
			}
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

func wantSlices(t *testing.T, a *Arena, runs []Run, limit int64, content []byte) {
	t.Helper()
	var off int64
	for _, r := range runs {
		got, lasting, err := a.Copied(r)
		if err != nil || !bytes.Equal(got, content[off:off+r.Len]) || lasting != (r.At+r.Len <= limit) {
			t.Fatalf("%+v: lasting %v, error %v, or other bytes than captured", r, lasting, err)
		}
		off += r.Len
	}
	if off != int64(len(content)) {
		t.Errorf("%d bytes, want %d", off, len(content))
	}
	if _, _, err := a.Copied(Run{Len: 4096, At: limit + a.Overflow()}); err == nil {
		t.Error("bytes that were not captured")
	}
}

// piece is the size in bytes of the runs that captureParts captures.
const piece = 3 * pageSize

// batchOf returns a batch of runs of at most chunk bytes.
func batchOf(chunk uint64, off int64, ranges ...memmap.FileRange) *Batch {
	b := &Batch{Off: off}
	for _, r := range ranges {
		for piece := range pieces(r, chunk) {
			b.add(piece, chunk)
		}
	}
	return b
}

// captureParts captures a memory file of size bytes by four workers, in runs of three pages, which it returns.
func captureParts(t testing.TB, a *Arena, size uint64) []Run {
	t.Helper()
	var group sync.WaitGroup
	batches := make([]*Batch, (size+piece-1)/piece)
	for worker := range 4 {
		group.Go(func() {
			for i := worker; i < len(batches); i += 4 {
				off := uint64(i) * piece
				batches[i] = batchOf(piece, int64(off), memmap.FileRange{Start: off, End: min(off+piece, size)})
				if err := a.Capture(batches[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	return runsOf(batches)
}

func runsOf(batches []*Batch) (all []Run) {
	for _, b := range batches {
		all = append(all, b.Runs...)
	}
	return all
}

// BenchmarkOverflow captures 64 MiB, none of which fits into memory.
func BenchmarkOverflow(b *testing.B) {
	const size = 64 << 20
	fd, _ := newMemory(b, size)
	for _, encrypt := range []bool{false, true} {
		b.Run(fmt.Sprintf("encrypt=%v", encrypt), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				a, err := NewArena(ArenaOptions{Dir: b.TempDir(), Encrypt: encrypt})
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
	const size = 64 << 20
	fd, _ := newMemory(b, size)
	for _, encrypt := range []bool{false, true} {
		b.Run(fmt.Sprintf("encrypt=%v", encrypt), func(b *testing.B) {
			a, err := NewArena(ArenaOptions{Dir: b.TempDir(), Encrypt: encrypt})
			if err != nil {
				b.Fatal(err)
			}
			defer a.Close()
			if err := a.Register(0, fd, size); err != nil {
				b.Fatal(err)
			}
			runs := captureAll(b, a, size)
			b.SetBytes(size)
			for b.Loop() {
				for _, r := range runs {
					if _, _, err := a.Copied(r); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
