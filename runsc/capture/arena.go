package capture

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// Arena is a Pages that copies every run which is not stored already: into memory that was populated before the pause
// and, beyond its limit, into a file. Runs are in it in the order in which they were taken.
type Arena struct {
	most     int64 // limit of pages.img, in bytes; 0: none
	mem      []byte
	used     atomic.Int64 // bytes of mem that are taken; it may be more than there are
	overflow *overflow
	spilt    atomic.Int64 // bytes of overflow that are taken
	scratch  []byte       // what Slice returned last, unless that was part of mem

	baseline *Baseline // nil: nothing is stored already

	mapping *Mapping // of the memory file that holds most pages; nil: none

	mu    sync.RWMutex
	files map[int]source // by memory file

	errOnce sync.Once
	err     error // the first error of a Capture
}

// source is a memory file to copy from.
type source struct {
	fd      int
	mapping *Mapping // nil: it is read through fd
}

// ArenaOptions say what an arena takes, and from where it copies.
type ArenaOptions struct {
	Limit   int64  // bytes of memory
	Warm    int64  // bytes of it that are populated at once, so that they cost no page fault during the pause
	Dir     string // for a nameless file, which takes what does not fit
	Encrypt bool   // this file is encrypted
	// Most is how many bytes pages.img may have. A Capture that goes beyond them fails with ErrOutgrown. 0: any number.
	Most int64
	// Mapping, if set, is of the memory file that holds most pages: these are copied from it. The arena closes it.
	Mapping *Mapping
	// Baseline, if set, is of the same mapping. Only pages are copied that have changed since they were added to it.
	Baseline *Baseline
}

// NewArena returns an arena. Its options' mapping is closed by Close or, after an error, at once.
func NewArena(o ArenaOptions) (*Arena, error) {
	a := &Arena{most: o.Most, files: make(map[int]source), mapping: o.Mapping, baseline: o.Baseline}
	if limit := o.Limit; limit > 0 {
		mem, err := unix.Mmap(-1, 0, int(limit), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reserve %d bytes for the arena: %w", limit, err), a.Close())
		}
		a.mem = mem
		a.warm(min(o.Warm, limit))
	}
	var err error
	if a.overflow, err = newOverflow(o.Dir, o.Encrypt); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// ErrOutgrown means that a sandbox has more to save than it may have.
var ErrOutgrown = errors.New("the sandbox has grown too much since its checkpoint began")

// warm populates the first n bytes, with huge pages if the kernel has any: they make this and the copy cheaper. A
// failure costs only time: the pages fault in later.
func (a *Arena) warm(n int64) {
	const huge = 2 << 20
	n = min((n+huge-1)/huge*huge, int64(len(a.mem)))
	if n == 0 {
		return
	}
	_ = unix.Madvise(a.mem[:n], unix.MADV_HUGEPAGE)
	_ = unix.Madvise(a.mem[:n], unix.MADV_POPULATE_WRITE)
}

// Register implements Pages.
func (a *Arena) Register(file, fd int, _ uint64) error {
	src := source{fd: fd}
	if a.mapping.of(fd) {
		src.mapping = a.mapping
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files[file] = src
	return nil
}

// read fills p from off on.
func (s source) read(p []byte, off int64) error {
	if s.mapping != nil && off+int64(len(p)) <= int64(len(s.mapping.data)) {
		return s.mapping.copy(p, off)
	}
	return readFull(s.fd, p, off)
}

// readAll fills p with the bytes of all ranges.
func (s source) readAll(p []byte, ranges []memmap.FileRange) error {
	for _, r := range ranges {
		n := r.Length()
		if err := s.read(p[:n], int64(r.Start)); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// Capture implements Pages.
func (a *Arena) Capture(b *Batch) error {
	err := a.capture(b)
	if err != nil {
		a.errOnce.Do(func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.err = err
		})
	}
	return err
}

// Err returns the first error of any Capture. The sentry passes on only an errno.
func (a *Arena) Err() error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.err
}

func (a *Arena) capture(b *Batch) error {
	a.mu.RLock()
	from, ok := a.files[b.File]
	a.mu.RUnlock()
	if !ok {
		return fmt.Errorf("memory file %d was not registered", b.File)
	}
	off, rest := b.Off, b.Ranges
	for i := range b.Runs {
		r := &b.Runs[i]
		if off += r.Len; a.most > 0 && off > a.most {
			return fmt.Errorf("%w: it saves more than %d bytes of memory and files", ErrOutgrown, a.most)
		}
		var run []memmap.FileRange
		run, rest = split(rest, r.Len)
		if err := a.take(from, r, run); err != nil {
			return err
		}
	}
	return nil
}

// take takes a run: what of it is not stored already.
func (a *Arena) take(from source, r *Run, run []memmap.FileRange) (err error) {
	if a.baseline == nil || from.mapping == nil || !a.baseline.covers(run) {
		r.At, err = a.copy(from, run, r.Len)
		return err
	}
	r.window, r.pages = int(run[0].Start/a.baseline.chunk), a.baseline.pagesOf(run)
	if r.kept, err = a.baseline.unchanged(run, r.pages); err != nil || r.kept == r.pages {
		return err
	}
	if r.kept == 0 {
		r.At, err = a.copy(from, run, r.Len)
		return err
	}
	var few [windowPages]memmap.FileRange
	r.At, err = a.copy(from, a.baseline.rangesOf(few[:0], r.window, r.pages&^r.kept), r.copied())
	return err
}

// copied returns how many bytes of a run were copied.
func (r *Run) copied() int64 {
	if r.kept == 0 {
		return r.Len
	}
	return int64((r.pages &^ r.kept).len()) * pageSize
}

// copy copies n bytes, and returns their offset: in the memory, and beyond it in the overflow file.
func (a *Arena) copy(from source, ranges []memmap.FileRange, n int64) (at int64, err error) {
	limit := int64(len(a.mem))
	if n <= limit {
		if end := a.used.Add(n); end <= limit {
			return end - n, from.readAll(a.mem[end-n:end], ranges)
		}
	}
	at = a.spilt.Add(n) - n
	return limit + at, a.spill(from, ranges, at)
}

// spill copies ranges to offset dst of the overflow file.
func (a *Arena) spill(from source, ranges []memmap.FileRange, dst int64) error {
	buf := spillBuffers.Get().(*[]byte)
	defer spillBuffers.Put(buf)
	for _, r := range ranges {
		for src := r.Start; src < r.End; {
			b := (*buf)[:min(r.End-src, uint64(len(*buf)))]
			if err := from.read(b, int64(src)); err != nil {
				return err
			}
			if err := a.overflow.write(b, dst); err != nil {
				return err
			}
			src, dst = src+uint64(len(b)), dst+int64(len(b))
		}
	}
	return nil
}

var spillBuffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// readFull reads len(p) bytes at off of fd. Unlike os.File it needs no poller and no lock.
func readFull(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pread(fd, p, off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("read memory file at %#x: %w", off, err)
		case n == 0:
			return fmt.Errorf("read memory file at %#x: %w", off, io.ErrUnexpectedEOF)
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// Overflow returns how many bytes did not fit into memory.
func (a *Arena) Overflow() int64 { return a.overflow.end.Load() }

// Copied returns the bytes of a run that were copied: all of it, unless a part is Stored. It must not be called before
// the last Capture has returned. If lasting is true, the bytes stay valid until Close. Otherwise they stay valid until
// the next call of Copied, which must come from the same goroutine.
func (a *Arena) Copied(r Run) (data []byte, lasting bool, err error) {
	limit, n := int64(len(a.mem)), r.copied()
	end := r.At + n
	switch {
	case r.At < 0 || n < 0 || end > limit+a.overflow.end.Load():
		return nil, false, fmt.Errorf("bytes %d to %d were not captured", r.At, end)
	case end <= limit:
		return a.mem[r.At:end:end], true, nil
	case r.At < limit:
		return nil, false, fmt.Errorf("bytes %d to %d are not of one run", r.At, end)
	}
	a.scratch = slices.Grow(a.scratch[:0], int(n))[:n]
	return a.scratch, false, a.overflow.read(a.scratch, r.At-limit)
}

// Stored returns the chunk that has the pages of a run that were not copied, or ok=false if all were. If whole is true,
// that chunk is the run. Otherwise Patch makes the run of it.
func (a *Arena) Stored(r Run) (place int64, whole, ok bool) {
	if r.kept == 0 {
		return 0, false, false
	}
	w := &a.baseline.windows[r.window]
	return w.place, r.kept == r.pages && w.pages == r.pages, true
}

// StoredLen returns the length in bytes of the chunk that Stored returns.
func (a *Arena) StoredLen(r Run) int64 {
	return int64(a.baseline.windows[r.window].pages.len()) * pageSize
}

// Patch appends a run to dst: of the chunk that Stored has returned, and of what was copied.
func (a *Arena) Patch(dst, stored []byte, r Run) ([]byte, error) {
	if int64(len(stored)) != a.StoredLen(r) {
		return nil, fmt.Errorf("a chunk of %d bytes has the unchanged pages, want %d", len(stored), a.StoredLen(r))
	}
	copied, _, err := a.Copied(r)
	if err != nil {
		return nil, err
	}
	has := a.baseline.windows[r.window].pages
	for i := range windowPages {
		switch page := pageSet(1 << i); {
		case r.kept&page != 0:
			at := has.before(i) * pageSize
			dst = append(dst, stored[at:at+pageSize]...)
		case r.pages&page != 0:
			dst, copied = append(dst, copied[:pageSize]...), copied[pageSize:]
		}
	}
	return dst, nil
}

// Close frees the memory. No slice may be used after it.
func (a *Arena) Close() error {
	errs := []error{a.mapping.Close()}
	if a.mem != nil {
		errs = append(errs, unix.Munmap(a.mem))
		a.mem = nil
	}
	if a.overflow != nil {
		errs = append(errs, a.overflow.close())
		a.overflow = nil
	}
	return errors.Join(errs...)
}
