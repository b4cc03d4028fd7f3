package sidecar

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
)

// TestKilledPeerHasHungUp: an end that ended before it had read everything has hung up, and has broken no protocol.
func TestKilledPeerHasHungUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	killed, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(&Message{Kind: KindHello}, -1); err != nil {
		t.Fatal(err)
	}
	killed.Close() // as the kernel does for a process that is killed
	if _, err := c.Receive(new(Message)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}
