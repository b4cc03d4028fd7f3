package sleep

import (
	"encoding/binary"
	"net/netip"
)

// Flags of a TCP segment, beside tcpReset.
const (
	tcpFin  = 0x01
	tcpSyn  = 0x02
	tcpPush = 0x08
	tcpAck  = 0x10
)

// Lengths of headers that the waker writes, without options.
const (
	ipv4Header = 20
	tcpHeader  = 20
)

// window is the receive window that the waker announces, in bytes.
const window = 16 << 10

// segment is a TCP segment on its way to the pod.
type segment struct {
	mac      [6]byte // of the neighbour that has sent it
	from, to netip.AddrPort
	seq, ack uint32
	flags    byte
	data     []byte
}

// parseSegment reads an Ethernet frame. ok is false if it is no whole TCP segment.
func parseSegment(frame []byte) (s segment, ok bool) {
	if len(frame) < etherHeader {
		return s, false
	}
	s.mac = [6]byte(frame[6:12])
	p := frame[etherHeader:]
	var from, to netip.Addr
	switch binary.BigEndian.Uint16(frame[12:]) {
	case typeIPv4:
		if len(p) < ipv4Header || p[0]>>4 != 4 || p[9] != protoTCP || binary.BigEndian.Uint16(p[6:])&0x3fff != 0 {
			return s, false
		}
		header, total := int(p[0]&0xf)*4, int(binary.BigEndian.Uint16(p[2:]))
		if header < ipv4Header || total < header || total > len(p) {
			return s, false
		}
		from, to = netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
		p = p[header:total]
	case typeIPv6:
		if len(p) < ipv6Header || p[0]>>4 != 6 {
			return s, false
		}
		size := int(binary.BigEndian.Uint16(p[4:]))
		if size > len(p)-ipv6Header {
			return s, false
		}
		from, to = netip.AddrFrom16([16]byte(p[8:])), netip.AddrFrom16([16]byte(p[24:]))
		protocol, rest, part := beyondExtensions(p[6], p[ipv6Header:ipv6Header+size])
		if protocol != protoTCP || part != whole {
			return s, false
		}
		p = rest
	default:
		return s, false
	}
	return s, s.parse(from, to, p)
}

// parse reads what follows the IP header.
func (s *segment) parse(from, to netip.Addr, p []byte) bool {
	if len(p) < tcpHeader {
		return false
	}
	header := int(p[12]>>4) * 4
	if header < tcpHeader || header > len(p) {
		return false
	}
	s.from = netip.AddrPortFrom(from, binary.BigEndian.Uint16(p))
	s.to = netip.AddrPortFrom(to, binary.BigEndian.Uint16(p[2:]))
	s.seq, s.ack, s.flags = binary.BigEndian.Uint32(p[4:]), binary.BigEndian.Uint32(p[8:]), p[13]
	s.data = p[header:]
	return true
}

// length is how many sequence numbers the segment takes.
func (s *segment) length() uint32 {
	n := uint32(len(s.data))
	if s.flags&tcpSyn != 0 {
		n++
	}
	if s.flags&tcpFin != 0 {
		n++
	}
	return n
}

// reply returns the frame with the pod's answer to a segment.
func (h *host) reply(s *segment, seq, ack uint32, flags byte, data []byte) []byte {
	size := tcpHeader + len(data)
	var out []byte
	if s.to.Addr().Is4() {
		out = h.ether(s.mac[:], typeIPv4, ipv4Header+size)
		out = append(out, 0x45, 0)
		out = binary.BigEndian.AppendUint16(out, uint16(ipv4Header+size))
		out = append(out, 0, 0, 0x40, 0, 64, protoTCP, 0, 0)
	} else {
		out = h.ether(s.mac[:], typeIPv6, ipv6Header+size)
		out = append(out, 0x60, 0, 0, 0)
		out = binary.BigEndian.AppendUint16(out, uint16(size))
		out = append(out, protoTCP, 64)
	}
	out = append(append(out, s.to.Addr().AsSlice()...), s.from.Addr().AsSlice()...)
	end := len(out)
	out = binary.BigEndian.AppendUint16(out, s.to.Port())
	out = binary.BigEndian.AppendUint16(out, s.from.Port())
	out = binary.BigEndian.AppendUint32(out, seq)
	out = binary.BigEndian.AppendUint32(out, ack)
	out = append(out, tcpHeader/4<<4, flags)
	out = binary.BigEndian.AppendUint16(out, window)
	out = append(append(out, 0, 0, 0, 0), data...)
	addresses := out[end-2*len(s.to.Addr().AsSlice()) : end]
	binary.BigEndian.PutUint16(out[end+16:], checksum(protoTCP, addresses, out[end:]))
	if s.to.Addr().Is4() {
		binary.BigEndian.PutUint16(out[etherHeader+10:], fold(sum(0, out[etherHeader:end])))
	}
	return out
}

// turnAway decides about a frame of ignored traffic. Whoever awaits an answer of a pod that sleeps need not wait long.
func (h *host) turnAway(frame []byte, now stage) (v verdict, reply []byte) {
	if now != asleep {
		return keep, nil
	}
	s, ok := parseSegment(frame)
	if !ok || s.flags&(tcpSyn|tcpAck) != tcpSyn {
		return ignore, nil
	}
	return answer, h.reply(&s, 0, s.seq+s.length(), tcpReset|tcpAck, nil)
}
