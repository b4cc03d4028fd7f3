package capture

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc/sidecar"
)

// maxMemoryFiles bounds how many memory files a sandbox may register for one image file: the main
// one and one for each file system overlay.
const maxMemoryFiles = 1 << 12

// sources are the memory files registered for one image file. A sentry that breaks the protocol can
// make registration and closing meet.
type sources struct {
	mu     sync.Mutex
	fds    []int
	disk   []bool // whether each is a file on a disk
	closed bool
}

// add duplicates fd, and returns the number of the memory file and the descriptor, which stays
// valid until close.
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

// inMemory reports whether a memory file takes up memory for as long as it has pages.
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
