package integration

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// TestSleepMeetsConnection has a client connect while the pod falls asleep, at many instants around the end of its
// sandbox. Each is answered: by the pod that stays awake, or by the one that is woken.
func TestSleepMeetsConnection(t *testing.T) {
	n := start(t)
	p := n.sleeper("met", "--mib", "8")
	before := n.serving(p)
	slept := 0
	for i := range 15 {
		n.eventually("awake", func() error { return n.topsAsleep(p, false) })
		after := time.Duration(i) * 1200 * time.Microsecond
		err := n.duringSleep("fall asleep", p, func() {
			time.Sleep(after)
			n.ask(impatient, p)
		})
		if err == nil {
			slept++
		} else if status.Code(err) != codes.Aborted {
			t.Errorf("a connection %v after the beginning of the end: %v", after, err)
		}
	}
	t.Logf("it fell asleep %d times of 15", slept)
	n.alive(p, before)
}

// TestSleepLosesNoSegment sends the first segments of connections while a pod falls asleep, each of them once, as no
// client does that waits a second and sends it again. Each is answered.
func TestSleepLosesNoSegment(t *testing.T) {
	n := start(t)
	p := n.sleeper("sent", "--mib", "8")
	w := n.newKnocker(p)
	for range 10 {
		n.eventually("awake", func() error { return n.topsAsleep(p, false) })
		err := n.duringSleep("capture", p, func() {
			gap := time.Duration(rand.IntN(20)) * time.Millisecond
			time.Sleep(5 * gap)
			for range 20 {
				w.knock(n)
				time.Sleep(gap)
			}
		})
		if err != nil && status.Code(err) != codes.Aborted {
			t.Error(err)
		}
		w.answered(n)
	}
}

// knocker sends first segments of TCP connections, and has no connections.
type knocker struct {
	conn    net.PacketConn
	me, pod netip.Addr
	port    uint16          // of the last segment
	open    map[uint16]bool // ports whose segments were not answered
}

func (n *node) newKnocker(p *bed.Pod) *knocker {
	n.Helper()
	c, err := net.Dial("udp4", p.IP+":8080") // sends nothing; tells the node's own address
	if err != nil {
		n.Fatal(err)
	}
	defer c.Close()
	me := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
	conn, err := net.ListenPacket("ip4:tcp", me.String())
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { conn.Close() })
	return &knocker{conn: conn, me: me, pod: netip.MustParseAddr(p.IP), port: 20000, open: make(map[uint16]bool)}
}

// knock sends the first segment of a connection from a new port.
func (k *knocker) knock(n *node) {
	n.Helper()
	k.port++
	k.open[k.port] = true
	segment := make(header.TCP, header.TCPMinimumSize)
	segment.Encode(&header.TCPFields{
		SrcPort: k.port, DstPort: 8080, SeqNum: uint32(k.port) << 8, DataOffset: header.TCPMinimumSize,
		Flags: header.TCPFlagSyn, WindowSize: 1 << 14,
	})
	addresses := header.PseudoHeaderChecksum(header.TCPProtocolNumber, tcpip.AddrFrom4(k.me.As4()),
		tcpip.AddrFrom4(k.pod.As4()), uint16(len(segment)))
	segment.SetChecksum(^checksum.Checksum(segment, addresses))
	if _, err := k.conn.WriteTo(segment, &net.IPAddr{IP: k.pod.AsSlice()}); err != nil {
		n.Fatal(err)
	}
}

// answered fails the test unless the pod accepts all connections.
func (k *knocker) answered(n *node) {
	n.Helper()
	k.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	for buffer := make([]byte, 64<<10); len(k.open) > 0; {
		size, from, err := k.conn.ReadFrom(buffer)
		if err != nil {
			n.Fatalf("%d segments were lost: %v", len(k.open), err)
		}
		const answer = header.TCPFlagSyn | header.TCPFlagAck
		s := header.TCP(buffer[:size])
		if from.String() == k.pod.String() && size >= header.TCPMinimumSize && s.Flags()&answer == answer {
			delete(k.open, s.DestinationPort())
		}
	}
}
