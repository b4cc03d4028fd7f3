package sleep

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"diapause.dev/runsc/netns"
	"diapause.dev/test/privileged"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// podIP and nodeIP are the addresses of the newest pod and of its node. Each pod has others: the kernel sends again
// what the pod of a former test has not acknowledged.
var (
	podIP, nodeIP string
	pods          int
)

// newPod makes a network namespace with one end of a veth pair, addresses and a default route, as a network plugin
// does. The other end is in this process's namespace. It returns the path of the namespace.
func newPod(t *testing.T) (path string) {
	t.Helper()
	pods++
	podIP, nodeIP = fmt.Sprintf("10.213.%d.2", pods), fmt.Sprintf("10.213.%d.1", pods)
	path = newNamespace(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	name := fmt.Sprintf("slp%d", os.Getpid()%100000)
	peer := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(f.Fd())),
	}
	if err := netlink.LinkAdd(peer); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netlink.LinkDel(peer) }) // it may be gone with the namespace
	configure(t, name, nodeIP+"/24")
	inside(t, path, func() error {
		configure(t, "eth0", podIP+"/24", "fd00:213::2/64")
		_, all, _ := net.ParseCIDR("0.0.0.0/0")
		return netlink.RouteAdd(&netlink.Route{Dst: all, Gw: net.ParseIP(nodeIP)})
	})
	return path
}

// configure sets an interface up and gives it addresses.
func configure(t *testing.T, name string, addresses ...string) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Error(err)
		return
	}
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		if err == nil {
			a.Flags = unix.IFA_F_NODAD
			err = netlink.AddrAdd(l, a)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Error(err)
	}
}

// newNamespace returns the path of a network namespace that lasts until the test ends.
func newNamespace(t *testing.T) (path string) {
	t.Helper()
	privileged.Need(t, "a network namespace")
	made, end, ended := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		made <- err
		<-end
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(end)
		<-ended
	})
	return path
}

// inside runs f in a namespace.
func inside(t *testing.T, path string, f func() error) {
	t.Helper()
	n, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.Do(f); err != nil {
		t.Fatal(err)
	}
}

// state returns the addresses and routes of the pod's interface, as text.
func state(t *testing.T, path string) (all []string) {
	t.Helper()
	inside(t, path, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(l, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		six, err := netlink.AddrList(l, netlink.FAMILY_V6)
		for _, a := range append(addresses, six...) {
			all = append(all, a.IPNet.String())
		}
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(l, netlink.FAMILY_V4)
		for _, r := range routes {
			all = append(all, fmt.Sprint("route to ", r.Dst, " by ", r.Gw))
		}
		return err
	})
	slices.Sort(all)
	return all
}

// takeAddresses takes the addresses away, as runsc does.
func takeAddresses(t *testing.T, path string) {
	t.Helper()
	inside(t, path, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		all, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		for _, a := range all {
			if err := netlink.AddrDel(l, &a); err != nil {
				return err
			}
		}
		return err
	})
}

func TestPutBack(t *testing.T) {
	path := newPod(t)
	before := state(t, path)
	n, err := RecordNetwork(path)
	if err != nil {
		t.Fatal(err)
	}
	takeAddresses(t, path)
	if now := state(t, path); slices.Equal(now, before) {
		t.Fatalf("nothing was taken: %q", now)
	}
	for range 2 { // the second time nothing is missing
		if err := n.PutBack(); err != nil {
			t.Fatal(err)
		}
		if now := state(t, path); !slices.Equal(now, before) {
			t.Errorf("%q, was %q", now, before)
		}
	}
}

func TestNoNetwork(t *testing.T) {
	if _, err := RecordNetwork(newNamespace(t)); err == nil {
		t.Error("an empty namespace is a network")
	}
}

// TestWaker has a pod's neighbour send while nothing has the pod's address: the waker answers for it, holds what comes,
// and delivers it once the address is back.
func TestWaker(t *testing.T) {
	path := newPod(t)
	n, err := RecordNetwork(path)
	if err != nil {
		t.Fatal(err)
	}
	takeAddresses(t, path)
	if err := n.Silence(); err != nil {
		t.Fatal(err)
	}
	w, err := NewWaker(n, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Answer()
	c, err := net.Dial("udp", podIP+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, text := range []string{"one", "two"} {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-w.Traffic():
	case <-time.After(10 * time.Second):
		t.Fatal("no packet has come: nobody answers for the address")
	}
	if err := n.PutBack(); err != nil {
		t.Fatal(err)
	}
	var l net.PacketConn
	inside(t, path, func() (err error) {
		l, err = net.ListenPacket("udp4", podIP+":4000")
		return err
	})
	defer l.Close()
	if err := n.Unsilence(); err != nil {
		t.Fatal(err)
	}
	holds(t, w, 2)
	if d, err := w.Deliver(); err != nil || d.Sent < 2 || d.Dropped != 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	l.SetReadDeadline(time.Now().Add(10 * time.Second))
	for _, want := range []string{"one", "two"} {
		b := make([]byte, 16)
		size, _, err := l.ReadFrom(b)
		if err != nil || string(b[:size]) != want {
			t.Fatalf("%q, %v, want %q", b[:size], err, want)
		}
	}
}

// watchPod makes a pod as newPod does, and a waker that watches it until the test ends.
func watchPod(t *testing.T) (path string, w *Waker) {
	t.Helper()
	path = newPod(t)
	n, err := RecordNetwork(path)
	if err != nil {
		t.Fatal(err)
	}
	if w, err = NewWaker(n, nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return path, w
}

// probing is a prober with one connection that is open already.
type probing struct {
	kubelet
	c Connection
}

func (p probing) Open(pod []netip.Addr) []Connection {
	if !slices.Contains(pod, p.c.To.Addr()) {
		return nil
	}
	return []Connection{p.c}
}

// TestProbeUnderWay has the kubelet give up a probe that began before the pod was watched, and that a pod which sleeps
// by then has not answered. The probe's connection is reset, and is no traffic. That of a stranger is.
func TestProbeUnderWay(t *testing.T) {
	for _, tc := range []struct {
		name  string
		probe bool
	}{{"kubelet", true}, {"stranger", false}} {
		t.Run(tc.name, func(t *testing.T) {
			path := newPod(t)
			c := ask(t, path)
			n, err := RecordNetwork(path)
			if err != nil {
				t.Fatal(err)
			}
			var p probing
			if tc.probe {
				p.c = Connection{c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()}
			}
			w, err := NewWaker(n, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			takeAddresses(t, path)
			if err := n.Silence(); err != nil {
				t.Fatal(err)
			}
			w.Answer()
			if _, err := io.WriteString(c, "cancelled"); err != nil {
				t.Fatal(err)
			}
			if !tc.probe {
				if err := w.Quiet(t.Context(), time.Hour); !errors.Is(err, ErrTraffic) {
					t.Errorf("the end of a connection has come: %v", err)
				}
				return
			}
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("%v, want the connection reset", err)
			}
			if err := w.CatchUp(t.Context()); err != nil || w.Came() {
				t.Errorf("the end of a probe is traffic: %v", err)
			}
		})
	}
}

// ask connects to a server in the pod that takes a question, and never answers it.
func ask(t *testing.T, path string) net.Conn {
	t.Helper()
	var l net.Listener
	inside(t, path, func() (err error) {
		l, err = net.Listen("tcp4", podIP+":4000")
		return err
	})
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp", podIP+":4000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	pod, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pod.Close() })
	if _, err := io.WriteString(c, "question"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(pod, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestQuiet wants a packet to end the wait, and nothing else.
func TestQuiet(t *testing.T) {
	_, w := watchPod(t)
	if err := w.Quiet(t.Context(), time.Millisecond); err != nil {
		t.Errorf("nothing has come: %v", err)
	}
	c, err := net.Dial("udp", podIP+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := w.Quiet(t.Context(), time.Hour); !errors.Is(err, ErrTraffic) {
		t.Errorf("a packet has come: %v", err)
	}
}

// TestAcknowledged has a client of a server that runs while it is watched: the waker holds nothing that the server says
// it has.
func TestAcknowledged(t *testing.T) {
	path, w := watchPod(t)
	var l net.Listener
	inside(t, path, func() (err error) {
		l, err = net.Listen("tcp4", podIP+":4000")
		return err
	})
	defer l.Close()
	c, err := net.Dial("tcp", podIP+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pod, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	if _, err := io.WriteString(c, "question"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if _, err := io.ReadFull(pod, b); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(pod, "answer"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, b[:6]); err != nil {
		t.Fatal(err)
	}
	if err := w.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := w.sockets[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	client := c.LocalAddr().(*net.TCPAddr).AddrPort() // those of earlier tests may still send
	for _, data := range s.held.frames {
		if x, ok := parseSegment(data[virtioHeader:]); ok && x.from == client && x.length() > 0 {
			t.Errorf("holds a segment with flags %#x and data %q", x.flags, x.data)
		}
	}
	if !w.Came() {
		t.Error("no packet has come")
	}
}

// TestCatchUp sends many packets at once: after CatchUp, all of them are held.
func TestCatchUp(t *testing.T) {
	_, w := watchPod(t)
	c, err := net.Dial("udp", podIP+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("first")); err != nil { // has the kernel ask for the pod's hardware address
		t.Fatal(err)
	}
	holds(t, w, 1)
	sent := 1
	for range 100 {
		if _, err := c.Write([]byte("one")); err == nil { // otherwise it is told that there is no server
			sent++
		}
	}
	if err := w.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := w.sockets[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := len(s.held.frames); got < sent {
		t.Errorf("%d packets are held of %d", got, sent)
	}
}

// plug makes a veth pair of which one end, with that number, is in the calling thread's namespace, and the other end is
// eth0 of a pod's. Both are up.
func plug(t *testing.T, name string, index int, pod string) {
	t.Helper()
	f, err := os.Open(pod)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	end := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, Index: index}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(f.Fd())),
	}
	if err := netlink.LinkAdd(end); err != nil {
		t.Error(err)
		return
	}
	configure(t, name)
	t.Cleanup(func() {
		if l, err := netlink.LinkByName(name); err == nil {
			netlink.LinkDel(l)
		}
	})
	inside(t, pod, func() error {
		configure(t, "eth0", podIP+"/24")
		return nil
	})
}

// otherPod is the number of the node's end of another pod's pair of interfaces.
const otherPod = 7777

// TestHostilePeer has the network plugin put the other end of a pod's interface into a namespace of its own. Another
// pod's pair of interfaces has the same numbers. The first pod does not sleep: its packets would go to the other one.
func TestHostilePeer(t *testing.T) {
	pod, router, other := newNamespace(t), newNamespace(t), newNamespace(t)
	name := fmt.Sprintf("slo%d", os.Getpid()%100000)
	plug(t, name, otherPod, other)
	inside(t, router, func() error {
		plug(t, "port", otherPod, pod)
		return nil
	})
	for path, fits := range map[string]bool{pod: false, other: true} {
		n, err := RecordNetwork(path)
		if err != nil {
			t.Fatal(err)
		}
		w, err := NewWaker(n, nil, nil)
		if w != nil {
			w.Close()
		}
		if fits && err != nil || !fits && !errors.Is(err, ErrUnfit) {
			t.Errorf("whose other end is here: %v: %v", fits, err)
		}
	}
}

// TestHostilePeerLater has another pod's interface take the number of the node's end while a pod sleeps. No packet is
// delivered there.
func TestHostilePeerLater(t *testing.T) {
	pod, router, other := newNamespace(t), newNamespace(t), newNamespace(t)
	name := fmt.Sprintf("slo%d", os.Getpid()%100000)
	plug(t, name, otherPod, pod)
	n, err := RecordNetwork(pod)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWaker(n, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := w.sockets[0]
	s.mu.Lock()
	s.held.add(make([]byte, virtioHeader+60))
	s.mu.Unlock()
	end, err := netlink.LinkByIndex(otherPod)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(router)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := netlink.LinkSetNsFd(end, int(f.Fd())); err != nil {
		t.Fatal(err)
	}
	plug(t, name, otherPod, other)
	if d, err := w.Deliver(); err == nil || d.Sent != 0 || d.Dropped == 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// holds waits until a waker holds so many packets.
func holds(t *testing.T, w *Waker, count int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s := w.sockets[0]
		s.mu.Lock()
		n := len(s.held.frames)
		s.mu.Unlock()
		if n >= count {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d packets are held, want %d", n, count)
		}
	}
}
