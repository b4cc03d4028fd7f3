package gofer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc/peercred"
)

// process is the process of a sidecar.
type process struct{ fd *os.File } // nil: it has exited

// peer returns the process at the other end of a connection.
func peer(c *net.UnixConn) (*process, error) {
	cred, err := peercred.Of(c)
	if err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(int(cred.Pid), unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return &process{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", cred.Pid, err)
	}
	return &process{os.NewFile(uintptr(fd), fmt.Sprint("process ", cred.Pid))}, nil
}

// close releases the process.
func (p *process) close() {
	if p != nil && p.fd != nil {
		p.fd.Close()
	}
}

// exits waits until the process has exited. It returns false if ctx is done first, or if it cannot find out
// because the process is not known.
func (p *process) exits(ctx context.Context) bool {
	if p == nil || p.fd == nil {
		return p != nil
	}
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return false
	}
	stop := context.AfterFunc(ctx, func() { p.fd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 && err == nil
	})
	return err == nil
}
