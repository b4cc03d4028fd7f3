// Package peercred reads which process is at the other end of a Unix socket. The kernel vouches for the
// answer: the peer cannot forge it.
package peercred

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Of returns the credentials of a connection's peer: of the process that connected, or of the one that
// called listen. They are as of that call; the process may have ended since. Pid is 0 for a process of
// a PID namespace that this process cannot see.
func Of(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	refused := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(refused, err); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred, nil
}
