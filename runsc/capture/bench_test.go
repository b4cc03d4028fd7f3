package capture

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"

	"diapause.dev/runsc/sidecar"
)

// BenchmarkArena captures 64 MiB with two workers, as during a pause, in both ways of reading.
func BenchmarkArena(b *testing.B) {
	const size = 64 << 20
	fd, err := unix.MemfdCreate("bench", unix.MFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	block := make([]byte, 1<<20)
	for off := range len(block) {
		block[off] = byte(off * 7)
	}
	for off := int64(0); off < size; off += int64(len(block)) {
		if _, err := unix.Pwrite(fd, block, off); err != nil {
			b.Fatal(err)
		}
	}
	for _, mapped := range []bool{true, false} {
		name := "descriptor"
		if mapped {
			name = "mapping"
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				b.StopTimer()
				a := warmArena(b, fd, size, mapped)
				b.StartTimer()
				captureAll(b, a, size)
				b.StopTimer()
				a.Close()
				b.StartTimer()
			}
		})
	}
}

func warmArena(b *testing.B, fd int, size int64, mapped bool) *Arena {
	var m *Mapping
	if mapped {
		var err error
		if m, err = Map(opened(b, fd)); err != nil {
			b.Fatal(err)
		}
	}
	a, err := NewArena(ArenaOptions{Warm: size, Limit: size, Dir: b.TempDir(), Mapping: m})
	if err != nil {
		b.Fatal(err)
	}
	if err := a.Register(0, fd, uint64(size)); err != nil {
		b.Fatal(err)
	}
	return a
}

// captureAll captures a memory file of size bytes by two workers, and returns the runs.
func captureAll(b *testing.B, a *Arena, size uint64) []Run {
	var wg sync.WaitGroup
	batches := make([]*Batch, size/sidecar.MaxRead)
	for worker := range 2 {
		wg.Go(func() {
			for i := worker; i < len(batches); i += 2 {
				off := uint64(i) * sidecar.MaxRead
				batches[i] = batchOf(64<<10, int64(off), memmap.FileRange{Start: off, End: off + sidecar.MaxRead})
				if err := a.Capture(batches[i]); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return runsOf(batches)
}

// BenchmarkReuse captures 256 MiB that are all stored already, with two workers, as during a pause.
func BenchmarkReuse(b *testing.B) {
	const size = 256 << 20
	fd, _ := newMemory(b, size)
	f := opened(b, fd)
	m, err := Map(f)
	if err != nil {
		b.Fatal(err)
	}
	base, err := NewBaseline(m, 64<<10)
	if err != nil {
		b.Fatal(err)
	}
	stored := func([]byte, int) (int64, bool, error) { return 0, true, nil }
	if _, err := base.Round(b.Context(), f, nil, stored); err != nil {
		b.Fatal(err)
	}
	a, err := NewArena(ArenaOptions{Dir: b.TempDir(), Mapping: m, Baseline: base})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	if err := a.Register(0, fd, size); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		captureAll(b, a, size)
	}
}
