package capture

import (
	"errors"
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

// pagesFile is pages.img being written.
type pagesFile struct {
	capture *Capture
	pages   Pages
	to      answerer
	memory  memoryFiles

	limit    uint64 // bytes of all registered memory files: each page is saved at most once
	extents  []Extent
	size     uint64
	inMemory uint64 // bytes of size that come from memory files in memory

	writes   chan write
	underWay atomic.Int64 // writes that are not answered
	wg       sync.WaitGroup
	final    atomic.Bool
}

type write struct {
	id     uint64
	file   int
	ranges []memmap.FileRange
	off    int64
	total  uint64
}

func newPagesFile(c *Capture, pages Pages, to answerer) *pagesFile {
	f := &pagesFile{capture: c, pages: pages, to: to, writes: make(chan write, sidecar.MaxWrites)}
	for range runtime.GOMAXPROCS(0) {
		f.wg.Go(f.work)
	}
	return f
}

func (f *pagesFile) work() {
	for w := range f.writes {
		err := f.pages.Capture(w.file, w.ranges, w.off)
		f.underWay.Add(-1)
		f.to.completed(w.id, w.total, err)
	}
}

func (f *pagesFile) finalized() bool { return f.final.Load() }

func (f *pagesFile) close() {
	close(f.writes)
	f.wg.Wait()
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

func (f *pagesFile) write(m *sidecar.Message) error {
	if f.underWay.Load() >= sidecar.MaxWrites || f.finalized() {
		return errors.New("write out of turn")
	}
	if err := f.memory.check(m); err != nil {
		return err
	}
	for _, r := range m.Ranges {
		if r.Start%pageSize != 0 || r.End%pageSize != 0 {
			return fmt.Errorf("range %v is not of whole pages", r)
		}
	}
	w := write{id: m.ID, file: int(m.Dest), ranges: m.Ranges, off: int64(f.size), total: m.Total()}
	if f.size+w.total > f.limit {
		return fmt.Errorf("pages.img has more than the %d bytes of the registered memory files", f.limit)
	}
	for _, r := range m.Ranges {
		f.addExtent(Extent{w.file, r})
	}
	f.size += w.total
	if !f.memory.onDisk(w.file) {
		f.inMemory += w.total
	}
	f.underWay.Add(1)
	f.writes <- w // has room for all that may be under way
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
	if f.underWay.Load() > 0 {
		return errors.New("finished while writes are under way")
	}
	if err := f.capture.meanwhile.wait(); err != nil {
		return err
	}
	f.final.Store(true)
	f.capture.finished()
	return nil
}
