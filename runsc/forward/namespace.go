package forward

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrShared is the error for a network namespace that is also this process's.
var ErrShared = errors.New("network namespace is shared with the host")

// home is the network namespace of this process. It is that of the calling thread, because the program's first
// thread may be visiting another one.
const home = "/proc/thread-self/ns/net"

// namespace is a network namespace other than this process's. It lives while the file is open.
type namespace struct{ *os.File }

func openNamespace(path string) (namespace, error) {
	f, err := os.Open(path)
	if err != nil {
		return namespace{}, fmt.Errorf("open network namespace: %w", err)
	}
	its, err := f.Stat()
	if err == nil {
		var ours os.FileInfo
		if ours, err = os.Stat(home); err == nil && os.SameFile(its, ours) {
			err = ErrShared
		}
	}
	if err != nil {
		return namespace{}, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return namespace{f}, nil
}

// do runs f on a thread in the namespace. A thread that cannot be brought back ends with f.
func (n namespace) do(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- n.visit(f) }()
	return <-done
}

func (n namespace) visit(f func() error) error {
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

// addresses returns the addresses in the namespace at which other machines reach it.
func (n namespace) addresses() (found []netip.Addr, err error) {
	err = n.do(func() error {
		all, err := net.InterfaceAddrs()
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				found = append(found, p.Addr())
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("addresses of network namespace %s: %w", n.Name(), err)
	}
	return found, nil
}

// Addresses returns the addresses of the pod with the network namespace at path. Call it before the sandbox
// starts, because the sandbox takes the addresses out of the namespace. For this process's own namespace the
// error is [ErrShared].
func Addresses(path string) ([]netip.Addr, error) {
	n, err := openNamespace(path)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	return n.addresses()
}
