package sleep

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"diapause.dev/runsc/traffic"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestIgnored has a pod get what its waker is to ignore. While the sandbox runs, that is held like all else. While the
// pod sleeps, a connection is refused, and a packet of UDP is dropped. None wakes the pod. What comes from elsewhere
// does.
func TestIgnored(t *testing.T) {
	path := newPod(t)
	n, err := RecordNetwork(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWaker(n, nil, []traffic.Ignored{
		{Port: 9090}, {From: netip.MustParsePrefix(nodeIP + "/32"), Port: 4001},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	takeAddresses(t, path)
	send := func(port string) {
		t.Helper()
		c, err := net.Dial("udp", podIP+":"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("anybody there?")); err != nil {
			t.Fatal(err)
		}
	}
	peer, err := netlink.LinkByIndex(n.links[0].peer)
	if err == nil { // nobody answers for the address yet
		err = netlink.NeighSet(&netlink.Neigh{
			LinkIndex: peer.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(podIP), HardwareAddr: n.links[0].mac,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	send("9090")
	holds(t, w, 1)
	w.Answer()
	if err := n.Silence(); err != nil {
		t.Fatal(err)
	}
	for _, port := range []string{"9090", "4001"} {
		send(port)
		c, err := net.DialTimeout("tcp", podIP+":"+port, 10*time.Second)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("port %s: %v, want the connection refused", port, err)
		}
	}
	if err := w.CatchUp(t.Context()); err != nil || w.Came() {
		t.Errorf("the pod is woken: %v", err)
	}
	s := w.sockets[0]
	s.mu.Lock()
	if all := len(s.held.frames); all != 1 {
		t.Errorf("%d packets are held, want the one that came before the pod slept", all)
	}
	s.mu.Unlock()
	send("4000")
	select {
	case <-w.Traffic():
	case <-time.After(10 * time.Second):
		t.Error("a packet for another port does not wake the pod")
	}
}

// TestIgnoredOrder has an order list what is ignored.
func TestIgnoredOrder(t *testing.T) {
	o := Order{Verb: Watch, Ignored: []traffic.Ignored{
		{Port: 9090}, {From: netip.MustParsePrefix("fd00::/16")}, {From: netip.MustParsePrefix("10.1.2.0/24"), Port: 53},
	}}
	got, err := Parse(o.String())
	if err != nil || got.String() != o.String() || len(got.Ignored) != 3 || got.Ignored[2] != o.Ignored[2] {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{
		`{"verb":"watch","ignored":[{}]}`,
		`{"verb":"watch","ignored":[{"from":"10.0.0.0/33"}]}`,
		`{"verb":"watch","ignored":[{"port":65536}]}`,
		`{"verb":"watch","ignored":[` + strings.Repeat(`{"port":1},`, traffic.MaxIgnored) + `{"port":1}]}`,
	} {
		if o, err := Parse(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %+v, %v", text, o, err)
		}
	}
}
