package sleep

import (
	"encoding/binary"
	"net/netip"
)

// Numbers of the protocols that the waker reads.
const (
	etherHeader = 14
	typeIPv4    = 0x0800
	typeARP     = 0x0806
	typeIPv6    = 0x86dd

	arpLength = 28 // of a packet for Ethernet and IPv4

	ipv6Header    = 40
	protoHopByHop = 0 // an extension header of IPv6, as routing, fragment and destination are
	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoRouting  = 43
	protoFragment = 44
	protoICMPv6   = 58
	protoDestOpts = 60
	protoSCTP     = 132
	echoRequest   = 8
	echoRequestV6 = 128
	solicitation  = 135
	advertisement = 136

	tcpReset = 0x04 // a flag
)

// verdict is what the waker does with a frame.
type verdict int

const (
	ignore        verdict = iota
	answer                // send a reply
	keep                  // hold it, without waking the pod
	wake                  // hold it, and wake the pod
	wakeAndAnswer         // send a reply, and wake the pod
)

// host is one interface of the pod as its neighbours know it.
type host struct {
	mac       [6]byte
	addresses map[netip.Addr]bool
}

// look decides about an Ethernet frame. If the verdict is answer, reply is the frame to send.
func (h *host) look(frame []byte) (v verdict, reply []byte) {
	if len(frame) < etherHeader {
		return ignore, nil
	}
	payload := frame[etherHeader:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case typeARP:
		return h.arp(frame, payload)
	case typeIPv4:
		return h.ipv4(payload), nil
	case typeIPv6:
		return h.ipv6(frame, payload)
	}
	return ignore, nil
}

// arp answers a question for one of the addresses.
func (h *host) arp(frame, p []byte) (verdict, []byte) {
	const request, reply = 1, 2
	fixed := [6]byte{0, 1, typeIPv4 >> 8, typeIPv4 & 0xff, 6, 4} // Ethernet, IPv4, and the lengths of their addresses
	if len(p) < arpLength || [6]byte(p) != fixed || binary.BigEndian.Uint16(p[6:]) != request {
		return ignore, nil
	}
	target := netip.AddrFrom4([4]byte(p[24:]))
	if !h.addresses[target] {
		return ignore, nil
	}
	out := h.ether(frame[6:12], typeARP, arpLength)
	out = append(out, fixed[:]...)
	out = append(out, 0, reply)
	out = append(out, h.mac[:]...)
	out = append(out, p[24:28]...)
	return answer, append(out, p[8:18]...) // the asker's two addresses
}

// ether returns the header of a frame to a neighbour, with room for a payload of size bytes.
func (h *host) ether(to []byte, kind uint16, size int) []byte {
	out := make([]byte, 0, etherHeader+size)
	out = append(out, to[:6]...)
	out = append(out, h.mac[:]...)
	return binary.BigEndian.AppendUint16(out, kind)
}

func (h *host) ipv4(p []byte) verdict {
	if len(p) < 20 || p[0]>>4 != 4 {
		return ignore
	}
	header := int(p[0]&0xf) * 4
	if header < 20 || len(p) < header || !h.addresses[netip.AddrFrom4([4]byte(p[16:]))] {
		return ignore
	}
	if binary.BigEndian.Uint16(p[6:])&0x1fff != 0 {
		return keep // a later fragment: the first one wakes
	}
	return transport(p[9], p[header:], protoICMP, echoRequest)
}

// transport decides about a packet for the pod by its transport protocol. What ends a connection, or reports an error,
// is kept and does not wake the pod.
func transport(protocol byte, p []byte, icmp, echo byte) verdict {
	switch protocol {
	case protoTCP:
		if len(p) >= 14 && p[13]&tcpReset == 0 {
			return wake
		}
	case protoUDP, protoSCTP:
		return wake
	case icmp:
		if len(p) >= 8 && p[0] == echo {
			return wake
		}
	}
	return keep
}

func (h *host) ipv6(frame, p []byte) (verdict, []byte) {
	if len(p) < ipv6Header || p[0]>>4 != 6 {
		return ignore, nil
	}
	body := p[ipv6Header:]
	if p[6] == protoICMPv6 && len(body) > 0 && body[0] == solicitation {
		return h.solicited(frame, p, body)
	}
	if !h.addresses[netip.AddrFrom16([16]byte(p[24:]))] {
		return ignore, nil
	}
	if p[6] == protoICMPv6 && len(body) > 0 && body[0] == advertisement {
		return ignore, nil
	}
	protocol, body, part := beyondExtensions(p[6], body)
	if part == laterFragment {
		return keep, nil // the first one wakes
	}
	return transport(protocol, body, protoICMPv6, echoRequestV6), nil
}

// maxExtensions bounds the extension headers of a packet. RFC 8200, section 4.1 recommends five at most of those that
// gVisor knows.
const maxExtensions = 8

// fragment says which part of a packet a packet of IPv6 is.
type fragment int

const (
	whole fragment = iota
	firstFragment
	laterFragment
)

// beyondExtensions skips the extension headers of IPv6 that gVisor knows. It returns the protocol of the header that
// follows them, and what there is of the packet from that header on. If a header was cut off, or there are more than
// maxExtensions, that is an extension header.
func beyondExtensions(next byte, p []byte) (protocol byte, rest []byte, part fragment) {
	for range maxExtensions {
		size := 8
		switch next {
		case protoHopByHop, protoRouting, protoDestOpts:
			if len(p) > 1 {
				size += int(p[1]) * 8
			}
		case protoFragment:
		default:
			return next, p, part
		}
		if len(p) < size {
			return next, p, part
		}
		if next == protoFragment {
			if part = firstFragment; binary.BigEndian.Uint16(p[2:])&^7 != 0 {
				return p[0], p[size:], laterFragment
			}
		}
		next, p = p[0], p[size:]
	}
	return next, p, part
}

// solicited answers a neighbour that asks for one of the addresses (RFC 4861, sections 4.3, 4.4 and 7.1.1).
func (h *host) solicited(frame, p, body []byte) (verdict, []byte) {
	const (
		hops  = 255
		size  = 32 // of the answer: header, target, and one option
		flags = 0x60
	)
	if len(body) < 24 || p[7] != hops || body[1] != 0 || binary.BigEndian.Uint16(p[4:]) < 24 {
		return ignore, nil
	}
	target := [16]byte(body[8:])
	if !h.addresses[netip.AddrFrom16(target)] {
		return ignore, nil
	}
	to, mac, flag := p[8:24], frame[6:12], byte(flags)
	if netip.AddrFrom16([16]byte(to)).IsUnspecified() { // it asks whether it may take the address: all must hear it
		to = []byte{0: 0xff, 1: 2, 15: 1}
		mac, flag = []byte{0x33, 0x33, 0, 0, 0, 1}, flags&^0x40
	}
	out := h.ether(mac, typeIPv6, ipv6Header+size)
	out = append(out, 0x60, 0, 0, 0, 0, size, protoICMPv6, hops)
	out = append(append(out, target[:]...), to...)
	out = append(out, advertisement, 0, 0, 0, flag, 0, 0, 0)
	out = append(out, target[:]...)
	out = append(append(out, 2, 1), h.mac[:]...)
	message := out[etherHeader+ipv6Header:]
	binary.BigEndian.PutUint16(message[2:], checksum(protoICMPv6, out[etherHeader+8:etherHeader+ipv6Header], message))
	return answer, out
}

// checksum returns the checksum of a message of a protocol over IP, between two addresses.
func checksum(protocol byte, addresses, message []byte) uint16 {
	return fold(sum(sum(uint32(len(message))+uint32(protocol), addresses), message))
}

// sum adds the 16-bit words of b to n. It has room for 64 KiB.
func sum(n uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		n += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) > 0 {
		n += uint32(b[0]) << 8
	}
	return n
}

// fold makes a checksum of a sum.
func fold(n uint32) uint16 {
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return ^uint16(n)
}
