package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"diapause.dev/runsc/forward"
)

// dialLimit bounds how long runsc may take to connect to a port inside the sandbox.
const dialLimit = 5 * time.Second

// errSaves refuses a connection into a sandbox that its own processes may save. The shim would not know when to close
// it.
var errSaves = errors.New("the pod's processes may save it: only ports that listen on the pod's address can be " +
	"reached")

// dial connects to a port of the loopback inside the sandbox.
func (p *ports) dial(ctx context.Context, port int) (forward.Stream, error) {
	if p.pod.saves(wholePrefix) {
		return nil, errSaves
	}
	dir, err := os.Open(p.sentry.Bundle)
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	defer dir.Close()
	name := fmt.Sprint("port-", p.dials.Add(1))
	l, err := listenIn(dir, name)
	if err != nil {
		return nil, fmt.Errorf("socket for runsc: %w", err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if err := p.sentry.Forward(ctx, name, port); err != nil {
		return nil, err
	}
	if err := l.SetDeadline(time.Now().Add(time.Second)); err != nil { // runsc has connected already
		return nil, err
	}
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("runsc has not connected: %w", err)
	}
	return c, nil
}

// listenIn makes a socket in a directory, for root only. It uses the directory's descriptor, because the full path
// would be too long for a socket.
func listenIn(dir *os.File, name string) (*net.UnixListener, error) {
	path := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
