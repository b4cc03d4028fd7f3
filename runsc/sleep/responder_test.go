package sleep

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// respond makes a pod without addresses, whose sandbox waits for its containers, and a responder for its port 8080.
func respond(t *testing.T) (r *Responder, sandbox *os.File) {
	t.Helper()
	path := newPod(t)
	n, err := RecordNetwork(path)
	if err != nil {
		t.Fatal(err)
	}
	takeAddresses(t, path)
	inside(t, path, func() (err error) { // as the sandbox's process, which this one stands for, has opened it
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			sandbox, err = packetSocket(l.Attrs().Index)
		}
		return err
	})
	t.Cleanup(func() { sandbox.Close() })
	r, err = NewResponder(n, kubelet{podIP + ":8080"}, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, sandbox
}

// TestResponder has a node probe a pod that has no network yet, by HTTP and by TCP. A stranger gets no answer, and
// once the responder is drained, nor does the kubelet: both wait until the sandbox has its network.
func TestResponder(t *testing.T) {
	r, sandbox := respond(t)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for range 3 {
		resp, err := client.Get("http://" + podIP + ":8080/healthz")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("status %s", resp.Status)
		}
	}
	c, err := net.DialTimeout("tcp", podIP+":8080", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if !r.busy() {
		t.Error("an open connection is no probe under way")
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.Drain()
	}()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	<-drained
	if r.busy() {
		t.Error("a probe is under way after it was closed")
	}
	for _, port := range []string{":9090", ":8080"} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		var d net.Dialer
		if c, err := d.DialContext(ctx, "tcp", podIP+port); !errors.Is(err, os.ErrDeadlineExceeded) &&
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("port %s: %v, %v; want no answer", port, c, err)
		}
		cancel()
	}
	if n := segments(t, sandbox); n > 0 {
		t.Errorf("the sandbox got %d segments of TCP", n)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.DialTimeout("tcp", podIP+":9090", 300*time.Millisecond); err == nil {
		t.Error("who has answered?")
	}
	if segments(t, sandbox) == 0 {
		t.Error("the sandbox is deaf afterwards")
	}
}

// segments reads the frames that a socket has got, and returns how many are of TCP.
func segments(t *testing.T, sandbox *os.File) (n int) {
	t.Helper()
	raw, err := sandbox.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, maxFrame)
	for {
		var size int
		var from unix.Sockaddr
		if err := raw.Control(func(fd uintptr) { size, from, err = unix.Recvfrom(int(fd), b, 0) }); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			return n
		}
		l, ok := from.(*unix.SockaddrLinklayer)
		if _, is := parseSegment(b[virtioHeader:size]); ok && l.Pkttype != unix.PACKET_OUTGOING && is {
			n++
		}
	}
}

// TestNoTCP: a sandbox that waits gets everything except TCP.
func TestNoTCP(t *testing.T) {
	vm, err := bpf.NewVM(noTCP)
	if err != nil {
		t.Fatal(err)
	}
	ip4, ip6 := toPod+"0800 45000028 00004000 40", toPod+"86dd 60000000 0014"
	for text, want := range map[string]bool{
		ip4 + "060000 " + from4 + pod4 + syn: false, ip4 + "110000 " + from4 + pod4 + udp: true,
		ip6 + "0640" + from6 + pod6 + syn: false, ip6 + "1140" + from6 + pod6 + udp: true,
		toPod + "0806 0001 0800 06 04 0001 020000000002 06060606 060606060606 06060606": true,
		toPod + "0800 45": false, // cut off
	} {
		if n, err := vm.Run(frame(t, text)); err != nil || n > 0 != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
}

// TestHostileMute: a process without packet sockets, and one that is gone, are errors.
func TestHostileMute(t *testing.T) {
	for _, pid := range []int{1 << 30, os.Getppid()} {
		if m, err := mute(pid); err == nil {
			t.Errorf("process %d has %d packet sockets", pid, len(m))
		}
	}
}

// TestHostileResponder sends a responder what only a waker answers, or holds: it answers nobody except the kubelet, and
// tells nobody except the node which hardware address the pod has. A connection of the kubelet that is no probe is
// reset.
func TestHostileResponder(t *testing.T) {
	const node, stranger = "0a010001", "0a010063" // 10.1.0.1, 10.1.0.99
	question := func(from string) string {
		return "ffffffffffff 020000000002 0806 0001 0800 06 04 0001 020000000002 " + from + " 000000000000 " + pod4
	}
	r := &Responder{isOwn: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.1.0.1") }}
	s := &socket{host: *pod(), probes: probes{is: kubelet{"10.1.0.1:40000"}}}
	if r.answer(s, frame(t, question(node))) == nil {
		t.Error("the node gets no answer")
	}
	for _, text := range []string{
		question(stranger), question("00000000"), question(pod4),
		toPod + "0800 45000028 00004000 40060000 " + from4 + pod4 + syn,
		toPod + "0800 4500001c 00004000 40110000 " + from4 + pod4 + "0001 0002 0008 0000",
		toPod + "0800 4500001c 00004000 40010000 " + from4 + pod4 + "0800 0000 0000 0000",
		toPod + "0800", toPod + "0806", toPod + "86dd", "", "00",
	} {
		if reply := r.answer(s, frame(t, text)); reply != nil {
			t.Errorf("%s is answered with %x", text, reply)
		}
	}
	for range 10 * maxFrames {
		r.answer(s, frame(t, toPod+"0800 45000028 00004000 40060000 "+from4+pod4+syn))
	}
	if len(s.probes.all) > 0 || len(s.held.frames) > 0 {
		t.Errorf("%d connections and %d frames are held", len(s.probes.all), len(s.held.frames))
	}
	c := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8080")
	c.ps = &s.probes
	c.send(tcpSyn, "")
	peer := &host{mac: [6]byte{2, 0, 0, 0, 0, 2}}
	f := peer.reply(&segment{mac: pod().mac, from: c.to, to: c.from}, c.seq, c.ack, tcpAck|tcpPush, []byte("POST /"))
	if reply, ok := parseSegment(r.answer(s, f)); !ok || reply.flags&tcpReset == 0 || len(s.probes.all) > 0 {
		t.Errorf("what is no probe is answered with %+v, and %d connections are left", reply, len(s.probes.all))
	}
}

// TestIsOwn: an address that this machine has is its own, and another is not.
func TestIsOwn(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": true, "0.0.0.0": false, "::": false, "192.0.2.77": false, "224.0.0.1": false, "ff02::1": false,
	} {
		if got := isOwn(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is own: %v", address, got)
		}
	}
}

var _ io.Closer = (*Responder)(nil)
