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

	stored Stored // nil: nothing is stored already

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

// NewArena returns an arena with room for limit bytes. It populates the first warm bytes now, so that they cost
// no page fault during the pause. What does not fit goes to a nameless file in dir, encrypted if encrypt is set.
// The arena copies the memory file of mapping from the mapping, and closes it. Mapping may be nil.
func NewArena(warm, limit int64, dir string, encrypt bool, mapping *Mapping) (*Arena, error) {
	a := &Arena{files: make(map[int]source), mapping: mapping}
	if limit > 0 {
		mem, err := unix.Mmap(-1, 0, int(limit), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reserve %d bytes for the arena: %w", limit, err), a.Close())
		}
		a.mem = mem
		a.warm(min(warm, limit))
	}
	var err error
	if a.overflow, err = newOverflow(dir, encrypt); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// ErrOutgrown means that a sandbox has more to save than it may have.
var ErrOutgrown = errors.New("the sandbox has grown too much since its checkpoint began")

// Bound makes every Capture fail with ErrOutgrown that goes beyond the first n bytes of pages.img. It must be called
// before the first Capture.
func (a *Arena) Bound(n int64) { a.most = n }

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

// Stored knows chunks that are stored already.
type Stored interface {
	// Recognise looks for the chunk whose bytes are parts, one after the other, and says where it is: a number that is
	// not negative. It keeps nothing of parts, which are a sandbox's memory. It may be called from several goroutines.
	Recognise(parts [][]byte) (place int64, ok bool)
}

// Reuse makes every Capture look whether a run is stored already, and copy it only if it is not. Only runs of the memory
// file that is mapped are looked for. Reuse must be called before the first Capture.
func (a *Arena) Reuse(s Stored) { a.stored = s }

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
		var err error
		if r.At, err = a.take(from, run, r.Len); err != nil {
			return err
		}
	}
	return nil
}

// take takes a run of n bytes. Places of what is stored already are negative. The others are offsets: in the memory,
// and beyond it in the overflow file.
func (a *Arena) take(from source, run []memmap.FileRange, n int64) (at int64, err error) {
	if a.stored != nil && from.mapping.covers(run) {
		place, ok, err := from.mapping.recognise(a.stored, run)
		if err != nil || ok {
			return ^place, err
		}
	}
	limit := int64(len(a.mem))
	if n <= limit {
		if end := a.used.Add(n); end <= limit {
			return end - n, from.readAll(a.mem[end-n:end], run)
		}
	}
	at = a.spilt.Add(n) - n
	return limit + at, a.spill(from, run, at)
}

// spill copies a run to offset dst of the overflow file.
func (a *Arena) spill(from source, run []memmap.FileRange, dst int64) error {
	buf := spillBuffers.Get().(*[]byte)
	defer spillBuffers.Put(buf)
	for _, r := range run {
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

// Stored returns where a run is stored already, as Stored said.
func (r Run) Stored() (place int64, ok bool) { return ^r.At, r.At < 0 }

// Slice returns the bytes of a run that was copied. It must not be called before the last Capture has returned. If
// lasting is true, the bytes stay valid until Close. Otherwise they stay valid until the next call of Slice, which must
// come from the same goroutine.
func (a *Arena) Slice(r Run) (data []byte, lasting bool, err error) {
	limit, off := int64(len(a.mem)), r.At
	end := off + r.Len
	switch {
	case off < 0 || r.Len < 0 || end > limit+a.overflow.end.Load():
		return nil, false, fmt.Errorf("bytes %d to %d were not captured", off, end)
	case end <= limit:
		return a.mem[off:end:end], true, nil
	case off < limit:
		return nil, false, fmt.Errorf("bytes %d to %d are not of one run", off, end)
	}
	a.scratch = slices.Grow(a.scratch[:0], int(r.Len))[:r.Len]
	return a.scratch, false, a.overflow.read(a.scratch, off-limit)
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
