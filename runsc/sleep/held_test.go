package sleep

import (
	"net/netip"
	"testing"
)

// TestHeldAcknowledge holds segments of two connections, of which the pod acknowledges some.
func TestHeldAcknowledge(t *testing.T) {
	client, other, server := netip.MustParseAddrPort("10.0.0.1:1000"), netip.MustParseAddrPort("10.0.0.1:1001"),
		netip.MustParseAddrPort("10.0.0.2:80")
	var h held
	hold := func(from netip.AddrPort, seq uint32, flags byte, data string) {
		frame := new(host).reply(&segment{from: server, to: from}, seq, 0, flags, []byte(data))
		h.add(append(make([]byte, virtioHeader), frame...))
	}
	const first = 1<<32 - 4 // the numbers begin anew within the data
	hold(client, first, tcpSyn, "")
	hold(client, first+1, tcpAck, "GET / HTTP")
	hold(client, 7, tcpAck|tcpFin, "")
	hold(other, first, tcpSyn, "")
	h.add(append(make([]byte, virtioHeader), "no segment at all"...))
	for _, x := range []struct {
		flags byte
		ack   uint32
		want  int // frames that are held after it
	}{
		{tcpPush, 8, 5},    // acknowledges nothing
		{tcpAck, first, 5}, // does not have the first one
		{tcpAck | tcpSyn, first + 1, 4},
		{tcpAck, 6, 4}, // all but one byte
		{tcpAck, 7, 3},
		{tcpAck, 8, 2},
	} {
		h.acknowledge(&segment{from: server, to: client, flags: x.flags, ack: x.ack})
		if len(h.frames) != x.want {
			t.Errorf("after %+v, %d are held", x, len(h.frames))
		}
	}
	size := 0
	for _, frame := range h.frames {
		size += len(frame)
	}
	if h.bytes != size || h.dropped != 0 {
		t.Errorf("%d bytes of %d, %d dropped", h.bytes, size, h.dropped)
	}
}
