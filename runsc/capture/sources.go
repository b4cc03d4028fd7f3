package capture

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc/sidecar"
)

// maxMemoryFiles bounds how many memory files a sandbox may register for one image file. There is the main one,
// and one for each file system overlay.
const maxMemoryFiles = 1 << 12

// sources are the memory files registered for one image file. If a sentry breaks the protocol, registration and
// closing can happen at once.
type sources struct {
	mu     sync.Mutex
	fds    []int
	disk   []bool // whether each is a file on a disk
	closed bool
}

// add duplicates fd. It returns the memory file's number, and the duplicate, which stays valid until close.
func (s *sources) add(fd int32) (number, own int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.fds) >= maxMemoryFiles {
		return 0, -1, fmt.Errorf("cannot register another memory file after %d", len(s.fds))
	}
	own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, -1, fmt.Errorf("duplicate memory file: %w", err)
	}
	s.fds, s.disk = append(s.fds, own), append(s.disk, sidecar.OnDisk(own))
	return len(s.fds) - 1, own, nil
}

// inMemory reports whether the memory file's pages are in memory and not on a disk.
func (s *sources) inMemory(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return number < len(s.disk) && !s.disk[number]
}

func (s *sources) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, fd := range s.fds {
		unix.Close(fd)
	}
	s.fds = nil
}
