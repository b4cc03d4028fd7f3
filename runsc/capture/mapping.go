package capture

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
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

// populate walks the data extents. The sandbox runs meanwhile and may change them.
func (m *Mapping) populate(fd int) error {
	size := int64(len(m.data))
	for off := int64(0); off < size; {
		start, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && start >= size {
			return nil
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		end = min(end, size)
		// Failure costs only time.
		_ = unix.Madvise(m.data[start:end], unix.MADV_POPULATE_READ)
		off = end
	}
	return nil
}

// of reports whether fd is the memory file that is mapped.
func (m *Mapping) of(fd int) bool {
	var st unix.Stat_t
	return m != nil && unix.Fstat(fd, &st) == nil && st.Dev == m.file.Dev && st.Ino == m.file.Ino
}

// copy fills p from off on. If the sandbox truncates its own memory file meanwhile, copy returns an error, and
// the agent gets no SIGBUS.
func (m *Mapping) copy(p []byte, off int64) (err error) {
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
	copy(p, m.data[off:off+int64(len(p))])
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
