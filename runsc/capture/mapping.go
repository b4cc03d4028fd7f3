package capture

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// Mapping is a memory file that is mapped and populated before the pause. To copy from it during the pause costs
// no page fault, and half the time of reading through the file's descriptor.
type Mapping struct {
	data []byte
	file unix.Stat_t
}

// Map maps a memory file at its present size, and populates what is allocated. It allocates nothing: holes stay
// holes. What the sandbox allocates later faults in when it is copied. The caller keeps f.
func Map(f *os.File) (m *Mapping, err error) {
	m = new(Mapping)
	if err := unix.Fstat(int(f.Fd()), &m.file); err != nil {
		return nil, fmt.Errorf("map memory file: %w", err)
	}
	if m.file.Size == 0 || m.file.Size > maxPagesSize {
		return nil, fmt.Errorf("map memory file: it has %d bytes", m.file.Size)
	}
	if m.data, err = unix.Mmap(int(f.Fd()), 0, int(m.file.Size), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map memory file: %w", err)
	}
	if err := m.populate(int(f.Fd())); err != nil {
		return nil, errors.Join(fmt.Errorf("populate memory file: %w", err), m.Close())
	}
	return m, nil
}

// Size returns how long the file was when it was mapped, in bytes. What is allocated may be much less.
func (m *Mapping) Size() int64 { return int64(len(m.data)) }

// populate walks what is allocated. The sandbox runs meanwhile and may change that.
func (m *Mapping) populate(fd int) error {
	for r, err := range allocated(fd, int64(len(m.data))) {
		if err != nil {
			return err
		}
		// Failure costs only time.
		_ = unix.Madvise(m.data[r.Start:r.End], unix.MADV_POPULATE_READ)
	}
	return nil
}

// of reports whether fd is the memory file that is mapped.
func (m *Mapping) of(fd int) bool {
	var st unix.Stat_t
	return m != nil && unix.Fstat(fd, &st) == nil && st.Dev == m.file.Dev && st.Ino == m.file.Ino
}

// covers reports whether all ranges are mapped.
func (m *Mapping) covers(ranges []memmap.FileRange) bool {
	if m == nil {
		return false
	}
	for _, r := range ranges {
		if r.End > uint64(len(m.data)) {
			return false
		}
	}
	return true
}

// copy fills p from off on. If the sandbox truncates its own memory file meanwhile, copy returns an error, and
// the agent gets no SIGBUS.
func (m *Mapping) copy(p []byte, off int64) error {
	return guard(off, func() { copy(p, m.data[off:off+int64(len(p))]) })
}

// guard calls f, which reads mapped memory from off on. If that is not there, guard returns an error.
func guard(off int64, f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case runtime.Error:
			err = fmt.Errorf("memory file at %#x: %w", off, r)
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// Close unmaps the memory file.
func (m *Mapping) Close() error {
	if m == nil || m.data == nil {
		return nil
	}
	err := unix.Munmap(m.data)
	m.data = nil
	return err
}
