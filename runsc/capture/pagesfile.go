package capture

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

const (
	// maxWrite is how many bytes the sentry sends in one write, and maxWrites how many writes it sends at once. They
	// are small enough to keep all workers busy, and large enough to make the exchange with the sentry cheap.
	maxWrite  = 1 << 20
	maxWrites = 64
	maxRanges = maxWrite / pageSize
	// pageSize is the size, in bytes, of the pages that the sentry saves.
	pageSize = 4096
	// maxPagesSize bounds pages.img, in bytes.
	maxPagesSize = 1 << 42
)

// pagesFile is pages.img being written. It implements stateio.AsyncWriter.
type pagesFile struct {
	capture *Capture
	pages   Pages
	sources sources

	limit   atomic.Uint64 // bytes of all registered memory files: each page is saved at most once
	extents []Extent
	size    uint64
	memory  uint64 // bytes of size that come from sources in memory

	writes chan write
	done   chan stateio.Completion
	wg     sync.WaitGroup
	final  atomic.Bool
}

type write struct {
	id     int
	file   int
	ranges []memmap.FileRange
	one    [1]memmap.FileRange
	off    int64
	total  uint64
}

func newPagesFile(c *Capture, pages Pages) *pagesFile {
	f := &pagesFile{
		capture: c, pages: pages,
		writes: make(chan write, maxWrites),
		done:   make(chan stateio.Completion, maxWrites),
	}
	for range runtime.GOMAXPROCS(0) {
		f.wg.Go(f.work)
	}
	return f
}

func (f *pagesFile) work() {
	for w := range f.writes {
		c := stateio.Completion{ID: w.id, N: w.total}
		ranges := w.ranges
		if ranges == nil {
			ranges = w.one[:]
		}
		if err := f.pages.Capture(w.file, ranges, w.off); err != nil {
			c.N, c.Err = 0, err
		}
		f.done <- c
	}
}

func (f *pagesFile) finalized() bool { return f.final.Load() }

// Close implements stateio.AsyncWriter.Close.
func (f *pagesFile) Close() error {
	close(f.writes)
	f.wg.Wait()
	f.sources.close()
	return nil
}

// MaxWriteBytes implements stateio.AsyncWriter.MaxWriteBytes.
func (f *pagesFile) MaxWriteBytes() uint64 { return maxWrite }

// MaxRanges implements stateio.AsyncWriter.MaxRanges.
func (f *pagesFile) MaxRanges() int { return maxRanges }

// MaxParallel implements stateio.AsyncWriter.MaxParallel.
func (f *pagesFile) MaxParallel() int { return maxWrites }

// NeedRegisterSourceFD implements stateio.AsyncWriter.NeedRegisterSourceFD.
func (f *pagesFile) NeedRegisterSourceFD() bool { return true }

// RegisterSourceFD implements stateio.AsyncWriter.RegisterSourceFD.
func (f *pagesFile) RegisterSourceFD(fd int32, size uint64,
	_ []stateio.ClientFileRangeSetting,
) (stateio.SourceFile, error) {
	n, own, err := f.sources.add(fd)
	if err != nil {
		return nil, err
	}
	if err := f.pages.Register(n, own, size); err != nil {
		return nil, err
	}
	f.limit.Add(min(size, maxPagesSize))
	f.capture.meanwhile.begin()
	return n, nil
}

// AddWrite implements stateio.AsyncWriter.AddWrite.
func (f *pagesFile) AddWrite(id int, sf stateio.SourceFile, fr memmap.FileRange, _ []byte) {
	w := write{id: id, file: sf.(int), one: [1]memmap.FileRange{fr}, total: fr.Length()}
	f.add(w, w.one[:])
}

// AddWritev implements stateio.AsyncWriter.AddWritev.
func (f *pagesFile) AddWritev(id int, total uint64, sf stateio.SourceFile, frs []memmap.FileRange, _ []unix.Iovec) {
	f.add(write{id: id, file: sf.(int), ranges: frs, total: total}, frs)
}

func (f *pagesFile) add(w write, frs []memmap.FileRange) {
	for _, fr := range frs {
		if fr.Start%pageSize != 0 || fr.End%pageSize != 0 {
			f.done <- stateio.Completion{ID: w.id, Err: unix.EINVAL}
			return
		}
		f.addExtent(Extent{w.file, fr})
	}
	w.off = int64(f.size)
	if f.sources.inMemory(w.file) {
		f.memory += w.total
	}
	if f.size += w.total; f.size > min(f.limit.Load(), maxPagesSize) {
		f.done <- stateio.Completion{ID: w.id, Err: unix.EFBIG}
		return
	}
	f.writes <- w
}

// addExtent notes where bytes came from. It joins neighbours, so that unfragmented memory takes few extents.
func (f *pagesFile) addExtent(e Extent) {
	if n := len(f.extents); n > 0 && f.extents[n-1].File == e.File && f.extents[n-1].Range.End == e.Range.Start {
		f.extents[n-1].Range.End = e.Range.End
		return
	}
	f.extents = append(f.extents, e)
}

// Wait implements stateio.AsyncWriter.Wait.
func (f *pagesFile) Wait(cs []stateio.Completion, minCompletions int) ([]stateio.Completion, error) {
	return stateio.CompletionChanWait(f.done, cs, minCompletions)
}

// Reserve implements stateio.AsyncWriter.Reserve.
func (f *pagesFile) Reserve(uint64) {}

// Finalize implements stateio.AsyncWriter.Finalize.
func (f *pagesFile) Finalize() error {
	if err := f.capture.meanwhile.wait(); err != nil {
		return err
	}
	f.final.Store(true)
	f.capture.finished()
	return nil
}
