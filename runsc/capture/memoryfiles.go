package capture

import (
	"fmt"

	"diapause.dev/runsc"
	"diapause.dev/runsc/sidecar"
)

// memoryFiles are the sentry's memory files that are registered for one image file, by number. The main one comes
// first, and then one for each file system overlay. One goroutine at a time may use them.
type memoryFiles struct{ all []memoryFile }

type memoryFile struct {
	f      *sidecar.File
	size   uint64 // according to the sentry
	onDisk bool
}

// add takes over a memory file, which came with a message. It returns its number and its descriptor, which stays valid
// until close.
func (ms *memoryFiles) add(f *sidecar.File, size uint64) (number, fd int, err error) {
	onDisk, err := runsc.CheckMemoryFile(f.Fd())
	if err == nil && len(ms.all) >= sidecar.MaxDests {
		err = fmt.Errorf("more than %d memory files registered", sidecar.MaxDests)
	}
	if err != nil {
		f.Drop()
		return 0, -1, err
	}
	ms.all = append(ms.all, memoryFile{f, size, onDisk})
	return len(ms.all) - 1, ms.fd(len(ms.all) - 1), nil
}

// check returns an error unless a write is of bytes within a registered memory file.
func (ms *memoryFiles) check(m *sidecar.Message) error {
	if m.Dest >= uint32(len(ms.all)) {
		return fmt.Errorf("memory file %d is not registered", m.Dest)
	}
	if len(m.Ranges) == 0 {
		return fmt.Errorf("write of nothing from memory file %d", m.Dest)
	}
	size := ms.all[m.Dest].size
	for _, r := range m.Ranges {
		if r.End > size {
			return fmt.Errorf("range %v of a memory file of %d bytes", r, size)
		}
	}
	return nil
}

func (ms *memoryFiles) fd(number int) int { return ms.all[number].f.Fd() }

// onDisk reports whether the memory file's pages are on a disk and not in memory.
func (ms *memoryFiles) onDisk(number int) bool { return ms.all[number].onDisk }

func (ms *memoryFiles) close() {
	for _, m := range ms.all {
		m.f.Close()
	}
}
