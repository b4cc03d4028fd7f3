package shim

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// logPipe is the pipe in a bundle that containerd reads a shim's log from.
const logPipe = "log"

// holdLog keeps the log pipe of the bundle in the working directory open for reading, until release is called. A
// process that opens a pipe for writing waits until somebody reads from it, without a limit, and that is the first
// thing that a shim does. If containerd ends before, the next containerd may remove the bundle instead of reading, and
// the shim would wait for ever. Without a pipe holdLog does nothing.
func holdLog() (release func()) {
	fd, err := unix.Open(logPipe, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	f := os.NewFile(uintptr(fd), logPipe)
	return sync.OnceFunc(func() { f.Close() })
}
