package bed

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespaces are those that a bed, and each node of a cluster, has of its own.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID

// inNamespaces calls f on a thread of its own that has joined the namespaces of
// the process pid. What f does to files and sockets, and the processes it
// starts, are there; goroutines that it starts are not.
func inNamespaces(pid int, f func() error) error {
	return onThread(func() error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return fmt.Errorf("bed: open process %d: %w", pid, err)
		}
		defer unix.Close(fd)
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // the kernel asks for it
			return fmt.Errorf("bed: unshare: %w", err)
		}
		if err := unix.Setns(fd, namespaces); err != nil {
			return fmt.Errorf("bed: join the namespaces of process %d: %w", pid, err)
		}
		return f()
	})
}

// onThread calls f on a thread that ends after it. That is not the program's
// first, which would stay, and would show its namespaces as the program's.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThread(f)
			return
		}
		done <- f() // the thread ends with this goroutine, which never unlocks it
	}()
	return <-done
}
