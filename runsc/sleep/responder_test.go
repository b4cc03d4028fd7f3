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
)

// respond makes a pod without addresses, whose sandbox waits for its containers, and a responder for its port 8080.
func respond(t *testing.T) *Responder {
	t.Helper()
	path := newPod(t)
	n, err := RecordNetwork(path)
	if err != nil {
		t.Fatal(err)
	}
	takeAddresses(t, path)
	r, err := NewResponder(n, kubelet{podIP + ":8080"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestResponder has a node probe a pod that has no network yet, by HTTP and by TCP. A stranger gets no answer, and
// once the responder is drained, nor does the kubelet: both wait until the sandbox has its network.
func TestResponder(t *testing.T) {
	r := respond(t)
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
