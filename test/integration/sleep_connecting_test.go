package integration

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"golang.org/x/sys/unix"
)

// TestSleepConnecting puts a pod to sleep that sets up a connection, whose other end does not answer yet: it stays
// awake. Once the connection stands, it sleeps.
func TestSleepConnecting(t *testing.T) {
	n := start(t)
	neighbour := n.sleeper("neighbour", "--mib", "8")
	host, overflows := n.addressFor(neighbour), listenOverflows(t)
	port, empty := crowded(t, host)
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "dials", Containers: []bed.Container{
		{Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib=8"}},
		{Name: "nc", Image: images.Busybox, Command: []string{
			"/bin/sh", "-c", fmt.Sprintf("sleep infinity | nc %s %d", host, port),
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	before := n.serving(p)
	n.eventually("the first segment has come", func() error {
		if listenOverflows(t) == overflows {
			return fmt.Errorf("still %s overflows", overflows)
		}
		return nil
	})
	n.refusedSleep(p, "setting up: 1")
	n.alive(p, before)
	empty()
	n.eventually("the pod sleeps", func() error {
		_, err := n.cli("sleep", p.ID)
		return err
	})
	n.alive(p, before)
}

// addressFor returns this machine's address as a pod sees it.
func (n *node) addressFor(p *bed.Pod) string {
	n.Helper()
	conn, err := net.Dial("udp", p.IP+":9")
	if err != nil {
		n.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String()
}

// crowded listens at an address, and lets nobody in: the kernel drops the first segments of connections until empty is
// called.
func crowded(t *testing.T, host string) (port int, empty func()) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(host).To4())}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil { // it keeps one connection
		t.Fatal(err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	first, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	return l.Addr().(*net.TCPAddr).Port, func() {
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
			}
		}()
	}
}

// listenOverflows returns how many connections this machine has not let in because of others (proc(5), netstat).
func listenOverflows(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^TcpExt: (.*)$`).FindAllStringSubmatch(string(b), -1)
	for i, name := range strings.Fields(lines[0][1]) {
		if name == "ListenOverflows" {
			return strings.Fields(lines[1][1])[i]
		}
	}
	t.Fatal("the kernel counts no overflows")
	return ""
}
