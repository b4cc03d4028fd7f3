package use

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"diapause.dev/runsc/traffic"
	"diapause.dev/test/privileged"
)

// TestReceivedByKernel: packets of IP count. What neighbors ask for addresses does not.
func TestReceivedByKernel(t *testing.T) {
	privileged.Need(t, "a network namespace")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine, and so does its namespace
		if err := receivePackets(t); err != nil {
			t.Error(err)
		}
	}()
	<-done
}

// receivePackets has packets come for an interface of a new network namespace, from another one of it.
func receivePackets(t *testing.T) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	dir := fmt.Sprintf("/proc/self/task/%d/net", unix.Gettid())
	err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "node"}, PeerName: "pod"})
	if err != nil {
		return err
	}
	node, err1 := netlink.LinkByName("node")
	pod, err2 := netlink.LinkByName("pod")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	counts := make([]*count, 2)
	files, pid, began := t.TempDir(), unix.Gettid(), make(chan error)
	go func() { // the shim is in another network namespace
		var errs [2]error
		for i, port := range []uint16{9, 10} {
			ignored := []traffic.Ignored{{Port: port}}
			counts[i], errs[i] = begin(pid, ignored, filepath.Join(files, strconv.Itoa(int(port))))
		}
		began <- errors.Join(errs[:]...)
	}()
	if err := <-began; err != nil {
		return err
	}
	four, six := netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")
	for _, a := range []netip.Prefix{four, six} {
		n := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
		if err := netlink.AddrAdd(node, &netlink.Addr{IPNet: n, Flags: unix.IFA_F_NODAD}); err != nil {
			return err
		}
	}
	if err := errors.Join(netlink.LinkSetUp(node), netlink.LinkSetUp(pod)); err != nil {
		return err
	}
	for _, a := range []netip.Prefix{four, six} {
		gone, there := a.Addr().Next(), a.Addr().Next().Next()
		before, err := Received(dir)
		if err != nil {
			return err
		}
		frames := framesOf(t, dir)
		for framesOf(t, dir) < frames+2 { // until a question was asked
			if err := errors.Join(sendTo(gone), t.Context().Err()); err != nil {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n, err := Received(dir); n != before || err != nil {
			t.Errorf("questions for %s count as %d packets, %v", gone, n-before, err)
		}
		neighbor := &netlink.Neigh{
			LinkIndex: node.Attrs().Index, State: netlink.NUD_PERMANENT, IP: there.AsSlice(),
			HardwareAddr: pod.Attrs().HardwareAddr,
		}
		if err := netlink.NeighAdd(neighbor); err != nil {
			return err
		}
		for range 3 {
			if err := sendTo(there); err != nil {
				return err
			}
		}
		if n, err := Received(dir); n != before+3 || err != nil {
			t.Errorf("3 packets to %s count as %d, %v", there, n-before, err)
		}
	}
	for i, want := range map[int]uint64{0: 0, 1: 6} {
		before := counts[i].written
		if err := errors.Join(counts[i].write(), counts[i].close()); err != nil {
			return err
		}
		n, err := Packets(files, filepath.Base(strings.TrimSuffix(counts[i].file, packets)))
		if n-before != want || err != nil {
			t.Errorf("of 6 packets for port 9, %d count beside %v, want %d; %v", n-before, counts[i].file, want, err)
		}
	}
	return nil
}

func sendTo(a netip.Addr) error {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("packet"))
	return err
}

// framesOf returns how many frames the interface pod of a network namespace has received.
func framesOf(t *testing.T, dir string) (n int) {
	text, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == "pod:" {
			n, err = strconv.Atoi(f[2])
			if err != nil {
				t.Error(err)
			}
		}
	}
	return n
}

// TestClean: what was said of sandboxes that are gone is removed.
func TestClean(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"here", "here.packets", "gone", "gone.packets", "gone.packets.part"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Clean(dir, map[string]bool{"here": true}); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); len(left) != 2 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestCountNothing: a count that is to ignore nothing does not begin.
func TestCountNothing(t *testing.T) {
	if err := new(Counting).Begin(os.Getpid(), nil, filepath.Join(t.TempDir(), "a")); !errors.Is(err, traffic.ErrIgnored) {
		t.Errorf("%v", err)
	}
}

// TestReceived reads the kernel's text of counters.
func TestReceived(t *testing.T) {
	const ip = "Ip: Forwarding DefaultTTL InReceives InHdrErrors\n"
	for name, tc := range map[string]struct {
		read func(string) (uint64, error)
		text string
		want uint64
		bad  bool
	}{
		"IPv4":            {receivedIPv4, "Icmp: InMsgs\nIcmp: 9\n" + ip + "Ip: 2 64 12 0\n", 12, false},
		"no counters":     {receivedIPv4, ip, 0, true},
		"fewer counters":  {receivedIPv4, ip + "Ip: 2 64\n", 0, true},
		"another counter": {receivedIPv4, "Ip: Forwarding\nIp: 2\n", 0, true},
		"a word":          {receivedIPv4, ip + "Ip: 2 64 many 0\n", 0, true},
		"IPv6":            {receivedIPv6, "Ip6InReceives \t 12\nIp6InMcastPkts \t 5\nIcmp6InMsgs 9\n", 7, false},
		"only multicasts": {receivedIPv6, "Ip6InReceives 12\nIp6InMcastPkts 13\n", 0, false},
		"a word, IPv6":    {receivedIPv6, "Ip6InReceives many\n", 0, true},
		"nothing":         {receivedIPv6, "", 0, false},
	} {
		if got, err := tc.read(tc.text); got != tc.want || (err != nil) != tc.bad {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}
