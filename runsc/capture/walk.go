package capture

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// allocated yields what is allocated in the first size bytes of a file, in order. If it cannot be found out, the last
// thing that it yields is an error.
func allocated(fd int, size int64) iter.Seq2[memmap.FileRange, error] {
	return func(yield func(memmap.FileRange, error) bool) {
		for off := int64(0); off < size; {
			start, err := unix.Seek(fd, off, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) || err == nil && start >= size {
				return
			}
			if err == nil {
				off, err = unix.Seek(fd, start, unix.SEEK_HOLE)
			}
			if err != nil {
				yield(memmap.FileRange{}, err)
				return
			}
			off = min(off, size)
			if !yield(memmap.FileRange{Start: uint64(start), End: uint64(off)}, nil) {
				return
			}
		}
	}
}

// Walk calls f with the bytes of each run of at most chunk bytes that a capture of the memory file would take if
// everything that is allocated were captured. The sandbox may run: each run is copied first, so what f gets does not
// change until it returns. f is called from several goroutines; half of the processors are left to the sandboxes. Walk
// ends with the first error, or with ctx. The caller keeps the memory file, which must be the one that is mapped.
func (m *Mapping) Walk(ctx context.Context, memory *os.File, chunk int64, f func(raw []byte) error) error {
	workers := max(1, runtime.GOMAXPROCS(0)/2)
	group, ctx := errgroup.WithContext(ctx)
	batches := make(chan *Batch, workers)
	group.Go(func() error {
		defer close(batches)
		return m.batches(ctx, memory, uint64(chunk), batches)
	})
	for range workers {
		group.Go(func() error {
			buffer := make([]byte, chunk)
			for b := range batches {
				if err := m.each(b, buffer, f); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// batches sends what is allocated in the memory file.
func (m *Mapping) batches(ctx context.Context, memory *os.File, chunk uint64, to chan<- *Batch) error {
	b := &Batch{}
	send := func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case to <- b:
			b = &Batch{}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for r, err := range allocated(int(memory.Fd()), int64(len(m.data))) {
		if err != nil {
			return fmt.Errorf("walk memory file: %w", err)
		}
		for piece := range pieces(r, chunk) {
			if b.Size >= batchSize && !b.extends(piece, chunk) {
				if err := send(); err != nil {
					return err
				}
			}
			b.add(piece, chunk)
		}
	}
	return send()
}

// each calls f with the bytes of each run of a batch.
func (m *Mapping) each(b *Batch, buffer []byte, f func(raw []byte) error) error {
	rest := b.Ranges
	for _, r := range b.Runs {
		var run []memmap.FileRange
		run, rest = split(rest, r.Len)
		raw := buffer[:r.Len]
		if err := (source{mapping: m}).readAll(raw, run); err != nil {
			return err
		}
		if err := f(raw); err != nil {
			return err
		}
	}
	return nil
}
