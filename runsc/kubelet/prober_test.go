package kubelet

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"diapause.dev/runsc/sleep"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kubeletIs returns a prober for which the kubelet is that process.
func kubeletIs(pid int) prober {
	return prober{kubelet: func() (int, bool, error) { return pid, true, nil }}
}

// connect makes a connection to a listener, from an address.
func connect(t *testing.T, l net.Listener, from netip.AddrPort) (c net.Conn, ends sleep.Connection) {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from)}
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return c, sleep.Connection{From: addrPort(c.LocalAddr()), To: addrPort(c.RemoteAddr())}
}

func addrPort(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// serveAt listens at an address.
func serveAt(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestProber looks for the connections of a process to one address, of both families.
func TestProber(t *testing.T) {
	for _, tc := range []struct{ pod, other, node string }{
		{"127.0.0.7", "127.0.0.8", "127.0.0.1"}, {"::1", "127.0.0.8", "::1"},
	} {
		t.Run(tc.pod, func(t *testing.T) {
			pod := netip.MustParseAddr(tc.pod)
			c, ends := connect(t, serveAt(t, net.JoinHostPort(tc.pod, "0")), netip.AddrPortFrom(netip.MustParseAddr(tc.node), 0))
			connect(t, serveAt(t, tc.other+":0"), netip.AddrPort{})
			is := []netip.Addr{pod}
			p := kubeletIs(os.Getpid())
			if !p.IsProbe(ends) {
				t.Errorf("%v is no probe", ends)
			}
			open := p.Open(is)
			if !slices.Contains(open, ends) {
				t.Errorf("%v is not among %v", ends, open)
			}
			for _, o := range open {
				if o.To.Addr() != pod {
					t.Errorf("%v is to another address", o)
				}
			}
			other := kubeletIs(os.Getppid())
			if other.IsProbe(ends) || len(other.Open(is)) > 0 {
				t.Error("a connection of another process is a probe")
			}
			c.Close()
			if p.IsProbe(ends) {
				t.Error("a connection that was closed is a probe")
			}
		})
	}
}

// TestHostileConnections has a node have many connections: the kernel answers only with those to the pod's address,
// also with that of a socket for IPv6.
func TestHostileConnections(t *testing.T) {
	pod, other := netip.MustParseAddr("127.0.0.7"), serveAt(t, "127.0.0.8:0")
	for range 100 {
		connect(t, other, netip.AddrPort{})
	}
	l := serveAt(t, pod.String()+":0")
	_, ends := connect(t, l, netip.AddrPort{})
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet6{Addr: netip.AddrFrom16(pod.As16()).As16(), Port: int(addrPort(l.Addr()).Port())}
	if err := unix.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		answers, err := askDiag(unix.NLM_F_DUMP, family, openStates, make([]byte, diagEndsSize), onlyTo(pod))
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			t.Fatal(err)
		}
		for _, a := range answers {
			if s, ok := readSocket(family, a); !ok || s.To.Addr() != pod {
				t.Errorf("the kernel answers with %+v", s)
			}
		}
	}
	if open := kubeletIs(os.Getpid()).Open([]netip.Addr{pod}); len(open) != 2 || !slices.Contains(open, ends) {
		t.Errorf("%v; want %v and that of a socket for IPv6", open, ends)
	}
}

// TestOver closes connections whose other end, as a pod on a busy node, may be slow to take what was sent, or to close.
func TestOver(t *testing.T) {
	for _, address := range []string{"127.0.0.7:0", "[::1]:0"} {
		l := serveAt(t, address)
		p := kubeletIs(os.Getppid())
		c, ends := connect(t, l, netip.AddrPort{})
		is := []netip.Addr{ends.To.Addr()}
		if p.Over(ends) || slices.Contains(p.Open(is), ends) {
			t.Errorf("%v is open, and counts as over", ends)
		}
		c.Close()
		if !p.Over(ends) || !slices.Contains(p.Open(is), ends) { // the server has not closed it
			t.Errorf("%v is closed, and does not count as over", ends)
		}
		full, ends := connect(t, l, netip.AddrPort{})
		fill(t, full)
		full.Close()
		if p.Over(ends) || slices.Contains(p.Open(is), ends) {
			t.Errorf("%v is closed before all was taken that it sent, and counts as over", ends)
		}
	}
}

// fill sends until the other end takes no more.
func fill(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(err, raw.Write(func(fd uintptr) bool {
		for err == nil {
			_, err = unix.Write(int(fd), make([]byte, 64<<10))
		}
		return true
	}))
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
}

// TestProberSamePorts has two connections between the same ports, of which one is closed already: the other one is
// known nevertheless.
func TestProberSamePorts(t *testing.T) {
	one := serveAt(t, "127.0.0.7:0")
	port := addrPort(one.Addr()).Port()
	two := serveAt(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.8"), port).String())
	first, ends := connect(t, one, netip.MustParseAddrPort("127.0.0.1:0"))
	_, same := connect(t, two, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), ends.From.Port()))
	first.Close()
	p := kubeletIs(os.Getpid())
	if p.IsProbe(ends) || !p.IsProbe(same) {
		t.Errorf("%v, closed, is a probe: %v; %v is one: %v", ends, p.IsProbe(ends), same, p.IsProbe(same))
	}
}

// TestHostileProber has strangers connect from a port at which the kubelet listens.
func TestHostileProber(t *testing.T) {
	port := addrPort(serveAt(t, ":0").Addr()).Port()
	p := kubeletIs(os.Getpid())
	for _, from := range []string{"127.0.0.1", "10.9.8.7", "::1", "fd00::9"} {
		a := netip.MustParseAddr(from)
		to := netip.AddrPortFrom(a, 8080)
		if c := (sleep.Connection{From: netip.AddrPortFrom(a, port), To: to}); p.IsProbe(c) {
			t.Errorf("%v is a probe", c)
		}
	}
}
