package shim

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/pkg/shim"
	"golang.org/x/sys/unix"
)

// TestListen: the socket of a living shim is left alone, also if the shim is too busy to take a connection. That of a
// dead one is replaced.
func TestListen(t *testing.T) {
	address := "unix://" + filepath.Join(t.TempDir(), "s")
	first, err := listen(address)
	if err != nil || first == nil {
		t.Fatalf("%v, %v", first, err)
	}
	fillQueue(t, first)
	if socket, err := listen(address); err != nil || socket != nil {
		t.Errorf("beside a busy shim: %v, %v", socket, err)
	}
	first.SetUnlinkOnClose(false) // as if it were killed
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := listen(address)
	if err != nil || second == nil {
		t.Fatalf("in place of a dead shim: %v, %v", second, err)
	}
	second.Close()
}

// fillQueue connects to a socket until its queue takes no more connections.
func fillQueue(t *testing.T, l *net.UnixListener) {
	t.Helper()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var shortened error
	err = raw.Control(func(fd uintptr) { shortened = unix.Listen(int(fd), 1) })
	if err := errors.Join(err, shortened); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		conn, err := shim.AnonDialer("unix://"+l.Addr().String(), connectLimit)
		if err != nil {
			return
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the queue takes any number of connections")
}
