package capture

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// Baseline knows what of a memory file is stored already, page by page. It has a fingerprint of each such page:
// XXH3-64, under a random key that nobody else knows. A page that has changed by chance since keeps its fingerprint
// with a probability of 1 in 2^64. For pages that somebody has chosen it is no such bound: who guesses a half of the
// key can make pages that look alike. A sandbox that does so harms its own snapshot only.
//
// Round adds to a baseline while the sandbox runs. In the pause, an Arena that was given it copies only the pages that
// have changed.
type Baseline struct {
	mapping *Mapping
	seed    uint64
	chunk   uint64
	windows []window // by number, over the whole mapping
}

// windowPages is how many pages a window has at most.
const windowPages = 16

// pageSet has a bit for each page of a window.
type pageSet uint16

// window is what is stored of one window of a memory file.
type window struct {
	place  int64 // where the chunk is that has the pages, one after the other
	pages  pageSet
	print  uint64 // of all pages together: to compare them at once takes half the time
	prints [windowPages]uint64
}

// NewBaseline returns a baseline that knows nothing, for chunks of a size that is a multiple of a page's and at most
// 64 KiB. The mapping must not be closed before the last use of the baseline.
func NewBaseline(m *Mapping, chunk int64) (*Baseline, error) {
	if chunk <= 0 || chunk%pageSize != 0 || chunk/pageSize > windowPages {
		return nil, fmt.Errorf("chunks of %d bytes cannot be compared page by page", chunk)
	}
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	return &Baseline{
		mapping: m, seed: binary.LittleEndian.Uint64(seed[:]), chunk: uint64(chunk),
		windows: make([]window, (int64(len(m.data))+chunk-1)/chunk),
	}, nil
}

// Store is asked to store a chunk, of which so many bytes are not known to be stored. It returns where the chunk is, a
// number that is not negative, or that it is not stored. It may keep nothing of raw. It is called from several
// goroutines.
type Store func(raw []byte, changed int) (place int64, ok bool, err error)

// Pace has a round give way to what else runs. It is called after a piece of work of a few milliseconds, with the time
// that the piece took, and returns when the next one may begin. It is called from several goroutines.
type Pace func(ctx context.Context, took time.Duration) error

// Round goes through all memory that is allocated, and has store called for each chunk that has changed since it was
// stored, or never was. The sandbox may run: each chunk is copied first. Half of the processors are left to the
// sandboxes, and more if pace says so; it may be nil. Round returns how many bytes are not stored as they were when it
// came by. It ends with the first error, or with ctx. The memory file must be the one that is mapped; the caller keeps
// it. Rounds must not overlap.
func (b *Baseline) Round(ctx context.Context, memory *os.File, pace Pace, store Store) (left int64, err error) {
	workers := max(1, runtime.GOMAXPROCS(0)/2)
	group, ctx := errgroup.WithContext(ctx)
	batches := make(chan *Batch, workers)
	group.Go(func() error {
		defer close(batches)
		return b.batches(ctx, memory, batches)
	})
	var sum atomic.Int64
	for range workers {
		group.Go(func() error {
			n, err := b.work(ctx, batches, pace, store)
			sum.Add(n)
			return err
		})
	}
	err = group.Wait()
	return sum.Load(), err
}

// work handles batches until there are no more.
func (b *Baseline) work(ctx context.Context, batches <-chan *Batch, pace Pace, store Store) (left int64, err error) {
	buffer := make([]byte, b.chunk)
	for batch := range batches {
		began := time.Now()
		n, err := b.round(batch, buffer, store)
		left += n
		if err == nil && pace != nil {
			err = pace(ctx, time.Since(began))
		}
		if err != nil {
			return left, err
		}
	}
	return left, nil
}

// batches sends what is allocated in the memory file.
func (b *Baseline) batches(ctx context.Context, memory *os.File, to chan<- *Batch) error {
	batch := &Batch{}
	send := func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case to <- batch:
			batch = &Batch{}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for r, err := range allocated(int(memory.Fd()), int64(len(b.mapping.data))) {
		if err != nil {
			return fmt.Errorf("go through memory file: %w", err)
		}
		for piece := range pieces(r, b.chunk) {
			if batch.Size >= batchSize && !batch.extends(piece, b.chunk) {
				if err := send(); err != nil {
					return err
				}
			}
			batch.add(piece, b.chunk)
		}
	}
	return send()
}

// round handles a batch, whose runs are all of different windows.
func (b *Baseline) round(batch *Batch, buffer []byte, store Store) (left int64, err error) {
	rest := batch.Ranges
	for _, r := range batch.Runs {
		var run []memmap.FileRange
		run, rest = split(rest, r.Len)
		raw := buffer[:r.Len]
		if err := (source{mapping: b.mapping}).readAll(raw, run); err != nil {
			return left, err
		}
		w := window{pages: b.pagesOf(run), print: b.print(raw)}
		known := &b.windows[run[0].Start/b.chunk]
		if w.pages == known.pages && w.print == known.print {
			continue
		}
		for i, at := 0, raw; i < windowPages; i++ {
			if w.pages&(1<<i) != 0 {
				w.prints[i], at = b.print(at[:pageSize]), at[pageSize:]
			}
		}
		changed := w.changedSince(known)
		if changed == 0 { // pages have gone
			continue
		}
		place, ok, err := store(raw, changed*pageSize)
		if err != nil {
			return left, err
		}
		if !ok {
			left += int64(changed) * pageSize
			continue
		}
		w.place = place
		*known = w
	}
	return left, nil
}

// changedSince returns how many pages of w are not in old, or are others there.
func (w *window) changedSince(old *window) (n int) {
	for i, print := range w.prints {
		if page := pageSet(1 << i); w.pages&page != 0 && (old.pages&page == 0 || old.prints[i] != print) {
			n++
		}
	}
	return n
}

func (b *Baseline) print(data []byte) uint64 { return xxh3.HashSeed(data, b.seed) }

// pagesOf returns the pages of a run.
func (b *Baseline) pagesOf(run []memmap.FileRange) (s pageSet) {
	for _, r := range run {
		for at := r.Start; at < r.End; at += pageSize {
			s |= 1 << (at % b.chunk / pageSize)
		}
	}
	return s
}

// rangesOf appends where pages of a window are.
func (b *Baseline) rangesOf(ranges []memmap.FileRange, number int, pages pageSet) []memmap.FileRange {
	for i := range windowPages {
		if pages&(1<<i) == 0 {
			continue
		}
		at := uint64(number)*b.chunk + uint64(i)*pageSize
		if n := len(ranges); n > 0 && ranges[n-1].End == at {
			ranges[n-1].End += pageSize
			continue
		}
		ranges = append(ranges, memmap.FileRange{Start: at, End: at + pageSize})
	}
	return ranges
}

// covers reports whether a run lies in one window of the mapping, and its pages are in order, each once.
func (b *Baseline) covers(run []memmap.FileRange) bool {
	for i := 1; i < len(run); i++ {
		if run[i].Start < run[i-1].End {
			return false
		}
	}
	return b.mapping.covers(run) && run[0].Start/b.chunk == (run[len(run)-1].End-1)/b.chunk
}

// unchanged returns those of the pages of a run that are stored as they are now. The sandbox must be paused. The run
// must be covered.
func (b *Baseline) unchanged(run []memmap.FileRange, all pageSet) (pages pageSet, err error) {
	w := &b.windows[run[0].Start/b.chunk]
	if w.pages&all == 0 {
		return 0, nil
	}
	err = guard(int64(run[0].Start), func() {
		if len(run) == 1 && w.pages == all && w.print == b.print(b.mapping.data[run[0].Start:run[0].End]) {
			pages = all
			return
		}
		for _, r := range run {
			for at := r.Start; at < r.End; at += pageSize {
				i := at % b.chunk / pageSize
				if page := pageSet(1 << i); w.pages&page != 0 && w.prints[i] == b.print(b.mapping.data[at:at+pageSize]) {
					pages |= page
				}
			}
		}
	})
	return pages, err
}

// len returns how many pages there are.
func (s pageSet) len() int { return bits.OnesCount16(uint16(s)) }

// before returns how many pages there are before page i.
func (s pageSet) before(i int) int { return (s & (1<<i - 1)).len() }
