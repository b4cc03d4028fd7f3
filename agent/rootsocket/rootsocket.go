// Package rootsocket listens on Unix sockets that only root may use.
package rootsocket

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"diapause.dev/runsc/peercred"
)

// Listener accepts connections from processes of root and closes all others.
type Listener struct {
	*net.UnixListener
	log *slog.Logger
}

// Listen listens on path with a socket of mode 0600. If its directory does not exist, Listen creates it with mode 0700.
// network is "unix" or "unixpacket". Listen replaces a socket that an earlier process has left.
func Listen(network, path string, log *slog.Logger) (*Listener, error) {
	l, err := listen(network, path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &Listener{UnixListener: l, log: log}, nil
}

func listen(network, path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) { return l.AcceptUnix() }

// AcceptUnix returns the next connection whose peer is root.
func (l *Listener) AcceptUnix() (*net.UnixConn, error) {
	for {
		uc, err := l.UnixListener.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if err := checkPeer(uc); err != nil {
			l.log.Warn("connection refused", "socket", l.Addr().String(), "error", err)
			uc.Close()
			continue
		}
		return uc, nil
	}
}

func checkPeer(uc *net.UnixConn) error {
	cred, err := peercred.Of(uc)
	if err != nil {
		return err
	}
	if cred.Uid != 0 {
		return fmt.Errorf("process %d of user %d is not root", cred.Pid, cred.Uid)
	}
	return nil
}
