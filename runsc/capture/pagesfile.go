package capture

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/sentry/memmap"

	"diapause.dev/runsc/sidecar"
)

const (
	// pageSize is the size, in bytes, of the pages that the sentry saves.
	pageSize = 4096
	// maxPagesSize bounds pages.img, in bytes.
	maxPagesSize = 1 << 42
)

// pagesFile is pages.img being written. Its writes are not answered: finish waits for them all.
type pagesFile struct {
	capture *Capture
	pages   Pages
	memory  memoryFiles

	limit    uint64 // bytes of all registered memory files: each page is saved at most once
	extents  []Extent
	size     uint64
	inMemory uint64 // bytes of size that come from memory files in memory

	writes   chan write
	underWay sync.WaitGroup // writes that are not copied yet
	workers  sync.WaitGroup
	failed   atomic.Pointer[error] // the first failure of a copy
	final    atomic.Bool
}

type write struct {
	file   int
	ranges []memmap.FileRange
	off    int64
}

func newPagesFile(c *Capture, pages Pages) *pagesFile {
	f := &pagesFile{capture: c, pages: pages, writes: make(chan write, sidecar.MaxWrites)}
	for range runtime.GOMAXPROCS(0) {
		f.workers.Go(f.work)
	}
	return f
}

// work copies pages until close. After a failure it copies nothing.
func (f *pagesFile) work() {
	for w := range f.writes {
		if f.failed.Load() == nil {
			if err := f.pages.Capture(w.file, w.ranges, w.off); err != nil {
				f.failed.CompareAndSwap(nil, &err)
			}
		}
		f.underWay.Done()
	}
}

func (f *pagesFile) finalized() bool { return f.final.Load() }

func (f *pagesFile) close() {
	close(f.writes)
	f.workers.Wait()
	f.memory.close()
}

func (f *pagesFile) register(m *sidecar.File, size uint64) error {
	n, fd, err := f.memory.add(m, size)
	if err != nil {
		return err
	}
	if err := f.pages.Register(n, fd, size); err != nil {
		return err
	}
	f.limit = min(f.limit+size, maxPagesSize)
	f.capture.meanwhile.begin()
	return nil
}

// write waits while as many writes as may be are under way: the sentry waits for the sidecar then.
func (f *pagesFile) write(m *sidecar.Message) error {
	if err := f.memory.check(m); err != nil {
		return err
	}
	for _, r := range m.Ranges {
		if r.Start%pageSize != 0 || r.End%pageSize != 0 {
			return fmt.Errorf("range %v is not of whole pages", r)
		}
	}
	w := write{file: int(m.Dest), ranges: m.Ranges, off: int64(f.size)}
	total := m.Total()
	if f.size+total > f.limit {
		return fmt.Errorf("pages.img has more than the %d bytes of the registered memory files", f.limit)
	}
	for _, r := range m.Ranges {
		f.addExtent(Extent{w.file, r})
	}
	f.size += total
	if !f.memory.onDisk(w.file) {
		f.inMemory += total
	}
	f.underWay.Add(1)
	f.writes <- w
	return nil
}

// addExtent notes where bytes came from. It joins neighbours, so that unfragmented memory takes few extents.
func (f *pagesFile) addExtent(e Extent) {
	if n := len(f.extents); n > 0 && f.extents[n-1].File == e.File && f.extents[n-1].Range.End == e.Range.Start {
		f.extents[n-1].Range.End = e.Range.End
		return
	}
	f.extents = append(f.extents, e)
}

func (f *pagesFile) finish() error {
	f.underWay.Wait()
	if err := f.failed.Load(); err != nil {
		return *err
	}
	if err := f.capture.meanwhile.wait(); err != nil {
		return err
	}
	f.final.Store(true)
	f.capture.finished()
	return nil
}
