package peercred_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/runsc/peercred"
)

// pair returns both ends of a connection.
func pair(t *testing.T, network string) (client, server *net.UnixConn) {
	t.Helper()
	addr := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: network}
	l, err := net.ListenUnix(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.DialUnix(network, nil, addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func TestOf(t *testing.T) {
	for _, network := range []string{"unix", "unixpacket"} {
		client, server := pair(t, network)
		for side, c := range map[string]*net.UnixConn{"client": client, "server": server} {
			cred, err := peercred.Of(c)
			if err != nil {
				t.Fatalf("%s, %s: %v", network, side, err)
			}
			if int(cred.Pid) != os.Getpid() || int(cred.Uid) != os.Getuid() || int(cred.Gid) != os.Getgid() {
				t.Errorf("%s, %s: peer is %+v, want this process", network, side, *cred)
			}
		}
	}
}

func TestOfClosed(t *testing.T) {
	client, _ := pair(t, "unix")
	client.Close()
	if cred, err := peercred.Of(client); err == nil {
		t.Errorf("a closed connection has the peer %+v", *cred)
	}
}
