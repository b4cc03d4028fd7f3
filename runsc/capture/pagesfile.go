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
	// batchSize is how many bytes are given to a worker at a time.
	batchSize = 1 << 20
	// batchRuns is how many runs a batch usually has at most.
	batchRuns = 24
)

// pagesFile is pages.img being written. Its writes are not answered: finish waits for them all.
type pagesFile struct {
	capture *Capture
	pages   Pages
	memory  memoryFiles

	chunk    uint64 // limit of a run, in bytes
	limit    uint64 // bytes of all registered memory files: each page is saved at most once
	size     uint64
	inMemory uint64 // bytes of size that come from memory files in memory

	next    *Batch   // being filled
	batches []*Batch // all, in order

	work     chan *Batch
	underWay sync.WaitGroup // batches that are not copied yet
	workers  sync.WaitGroup
	failed   atomic.Pointer[error] // the first failure of a copy
	final    atomic.Bool
}

func newPagesFile(c *Capture, pages Pages) *pagesFile {
	f := &pagesFile{capture: c, pages: pages, chunk: uint64(c.chunk), work: make(chan *Batch, sidecar.MaxWrites)}
	for range runtime.GOMAXPROCS(0) {
		f.workers.Go(f.copy)
	}
	return f
}

// copy copies pages until close. After a failure it copies nothing.
func (f *pagesFile) copy() {
	for b := range f.work {
		if f.failed.Load() == nil {
			if err := f.pages.Capture(b); err != nil {
				f.failed.CompareAndSwap(nil, &err)
			}
		}
		b.Ranges = nil // they are not needed any longer
		f.underWay.Done()
	}
}

func (f *pagesFile) finalized() bool { return f.final.Load() }

func (f *pagesFile) close() {
	close(f.work)
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

// write waits while as many batches as may be are under way: the sentry waits for the sidecar then.
func (f *pagesFile) write(m *sidecar.Message) error {
	if err := f.memory.check(m); err != nil {
		return err
	}
	for _, r := range m.Ranges {
		if r.Start%pageSize != 0 || r.End%pageSize != 0 {
			return fmt.Errorf("range %v is not of whole pages", r)
		}
	}
	file, total := int(m.Dest), m.Total()
	if f.size+total > f.limit {
		return fmt.Errorf("pages.img has more than the %d bytes of the registered memory files", f.limit)
	}
	for _, r := range m.Ranges {
		for piece := range pieces(r, f.chunk) {
			f.add(file, piece)
		}
	}
	if !f.memory.onDisk(file) {
		f.inMemory += total
	}
	return nil
}

// add adds a piece of a memory file to the batch, and hands the batch on if it is large enough. A run stays in one
// batch.
func (f *pagesFile) add(file int, piece memmap.FileRange) {
	if b := f.next; b != nil && (b.File != file || b.Size >= batchSize && !b.extends(piece, f.chunk)) {
		f.hand()
	}
	if f.next == nil {
		f.next = &Batch{
			File: file, Off: int64(f.size),
			Runs: make([]Run, 0, batchRuns), Ranges: make([]memmap.FileRange, 0, batchRuns),
		}
	}
	f.next.add(piece, f.chunk)
	f.size += piece.Length()
}

// hand hands the batch on to the workers.
func (f *pagesFile) hand() {
	if f.next == nil {
		return
	}
	f.batches = append(f.batches, f.next)
	f.underWay.Add(1)
	f.work <- f.next
	f.next = nil
}

// finish is called when no write comes any more.
func (f *pagesFile) finish() error {
	f.hand()
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

// runs returns all runs. It may be called after finish.
func (f *pagesFile) runs() []Run {
	var all []Run
	for _, b := range f.batches {
		all = append(all, b.Runs...)
	}
	return all
}
