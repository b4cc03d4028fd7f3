// Package netns runs code in another network namespace.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrShared is the error for a network namespace that is also this process's.
var ErrShared = errors.New("network namespace is shared with the host")

// home is the network namespace of this process. It is that of the calling thread, because the program's first
// thread may be visiting another one.
const home = "/proc/thread-self/ns/net"

// Namespace is a network namespace other than this process's. It lives while the file is open.
type Namespace struct{ *os.File }

// Open opens the network namespace at path. For this process's own namespace the error is [ErrShared].
func Open(path string) (Namespace, error) {
	f, err := os.Open(path)
	if err != nil {
		return Namespace{}, fmt.Errorf("open network namespace: %w", err)
	}
	its, err := f.Stat()
	if err == nil {
		var ours os.FileInfo
		if ours, err = os.Stat(home); err == nil && os.SameFile(its, ours) {
			err = ErrShared
		}
	}
	if err != nil {
		return Namespace{}, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return Namespace{f}, nil
}

// Do runs f on a thread in the namespace. A thread that cannot be brought back ends with f.
func (n Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- n.visit(f) }()
	return <-done
}

func (n Namespace) visit(f func() error) error {
	runtime.LockOSThread()
	back, err := os.Open(home)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer back.Close()
	if err := unix.Setns(int(n.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", n.Name(), err)
	}
	err = f()
	if unix.Setns(int(back.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
