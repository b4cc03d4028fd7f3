package traffic

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Flow is a kind of packet that comes for a pod.
type Flow struct {
	Protocol  string     // TCP, UDP, SCTP, ICMP, ICMPv6, ARP, or a number of IP or Ethernet
	From      netip.Addr // not valid: the frame names none
	Port      uint16     // of the pod; 0: the protocol has none, or the packet is a later fragment
	Broadcast bool       // it goes to many, not to the pod alone
}

// Count is how many packets of a kind have come.
type Count struct {
	Flow
	Packets int
}

// maxFlows bounds the kinds of packets that are told apart. Those beyond it are counted as one kind.
const maxFlows = 1024

// others stands for all kinds beyond maxFlows.
var others = Flow{Protocol: "others"}

// tally counts packets by kind.
type tally map[Flow]int

func (t tally) add(f Flow) {
	if _, known := t[f]; !known && len(t) >= maxFlows {
		f = others
	}
	t[f]++
}

// counts returns the kinds, those of most packets first.
func (t tally) counts() (all []Count) {
	for f, n := range t {
		all = append(all, Count{f, n})
	}
	slices.SortFunc(all, func(a, b Count) int {
		if n := b.Packets - a.Packets; n != 0 {
			return n
		}
		if n := a.From.Compare(b.From); n != 0 {
			return n
		}
		if n := strings.Compare(a.Protocol, b.Protocol); n != 0 {
			return n
		}
		return int(a.Port) - int(b.Port)
	})
	return all
}

// Lengths of headers, and numbers of protocols (IEEE 802, RFC 826, 791, 8200).
const (
	etherHeader = 14
	arpPacket   = 28 // for Ethernet and IPv4
	ipv4Header  = 20
	ipv6Header  = 40

	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeIPv6 = 0x86dd
)

// flowOf returns the kind of an Ethernet frame. What is cut off or wrong is of a kind that says less.
func flowOf(frame []byte) (f Flow) {
	if len(frame) < etherHeader {
		return Flow{Protocol: "not Ethernet"}
	}
	f.Broadcast = frame[0]&1 != 0
	kind, p := binary.BigEndian.Uint16(frame[12:]), frame[etherHeader:]
	switch {
	case kind == typeARP && len(p) >= arpPacket:
		f.Protocol, f.From = "ARP", netip.AddrFrom4([4]byte(p[14:]))
	case kind == typeIPv4 && len(p) >= ipv4Header:
		f.From = netip.AddrFrom4([4]byte(p[12:]))
		var body []byte
		if n := int(p[0]&0xf) * 4; n >= ipv4Header && n <= len(p) &&
			binary.BigEndian.Uint16(p[6:])&0x1fff == 0 {
			body = p[n:]
		}
		f.transport(p[9], body)
	case kind == typeIPv6 && len(p) >= ipv6Header:
		f.From = netip.AddrFrom16([16]byte(p[8:]))
		f.transport(p[6], p[ipv6Header:])
	default:
		f.Protocol = "Ethernet " + strconv.Itoa(int(kind))
	}
	return f
}

// transport sets the protocol of an IP packet, and the port that it is for. Extension headers of IPv6 are protocols.
func (f *Flow) transport(protocol byte, body []byte) {
	name, ported := "IP "+strconv.Itoa(int(protocol)), false
	switch protocol {
	case 1:
		name = "ICMP"
	case 6:
		name, ported = "TCP", true
	case 17:
		name, ported = "UDP", true
	case 58:
		name = "ICMPv6"
	case 132:
		name, ported = "SCTP", true
	}
	f.Protocol = name
	if ported && len(body) >= 4 {
		f.Port = binary.BigEndian.Uint16(body[2:])
	}
}
