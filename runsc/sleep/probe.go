package sleep

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Prober reports whether a TCP connection is one by which the kubelet of this node probes the pod. From is the address
// of the connection's other end, to the pod's.
type Prober func(from, to netip.AddrPort) bool

// Bounds of probes that are answered at a time. Beyond maxProbes, a connection of the kubelet wakes the pod.
const (
	maxProbes = 64
	probeTime = time.Minute
)

// maxReply bounds the data in one segment of an answer, in bytes.
const maxReply = 512

// success answers an HTTP probe.
const success = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

// probes answers the kubelet's probes for a pod that sleeps: it accepts a connection, answers an HTTP request with
// success, and closes the connection. It answers a check of health by gRPC likewise. What is neither, for instance TLS,
// wakes the pod, and the connection is reset: the kubelet probes again. It belongs to one goroutine.
//
// It is no whole TCP: a segment that is not the next one is answered with what was received so far, and nothing is
// sent again by itself. Between two ends of a veth pair segments neither get lost nor overtake each other.
type probes struct {
	is  Prober // nil: nothing is a probe
	all map[[2]netip.AddrPort]*probe
}

// probe is one connection.
type probe struct {
	next, expected uint32  // sequence numbers: of what is sent next, and of what is to come
	closed         bool    // the pod's side is
	foreign        bool    // the sandbox had it before the pod slept
	health         *health // nil: it is not by gRPC
	begun          time.Time
}

// take decides about a frame. Asleep says that the pod sleeps; before, the sandbox answers its probes itself. mine is
// false if the frame belongs to no probe, and is to be treated like any other.
func (ps *probes) take(h *host, frame []byte, asleep bool) (v verdict, reply []byte, mine bool) {
	if ps.is == nil {
		return ignore, nil, false
	}
	s, ok := parseSegment(frame)
	if !ok || !h.addresses[s.to.Addr()] {
		return ignore, nil, false
	}
	key := [2]netip.AddrPort{s.from, s.to}
	p := ps.all[key]
	if s.flags&(tcpSyn|tcpAck|tcpReset) == tcpSyn && ps.room() && (p != nil || ps.is(s.from, s.to)) {
		p = &probe{next: rand.Uint32(), expected: s.seq + s.length(), foreign: !asleep, begun: time.Now()}
		ps.set(key, p)
		if p.foreign {
			return ignore, nil, true
		}
		reply = h.reply(&s, p.next, p.expected, tcpSyn|tcpAck, nil)
		p.next++
		return answer, reply, true
	}
	if p == nil {
		return ignore, nil, false
	}
	if s.flags&tcpReset != 0 {
		delete(ps.all, key)
		return ignore, nil, true
	}
	if p.foreign {
		if !asleep || s.length() == 0 {
			return ignore, nil, true
		}
		delete(ps.all, key) // it fails once, and the next one is answered
		return answer, h.reply(&s, s.ack, s.seq+s.length(), tcpReset|tcpAck, nil), true
	}
	v, reply, over := p.take(h, &s)
	if over {
		delete(ps.all, key)
	}
	return v, reply, true
}

// take answers a segment of a probe. over says that nothing more comes of it.
func (p *probe) take(h *host, s *segment) (v verdict, reply []byte, over bool) {
	if s.length() == 0 { // it acknowledges what was sent
		return ignore, nil, p.closed && s.ack == p.next && p.expected == s.seq
	}
	if s.seq != p.expected {
		return answer, h.reply(s, p.next, p.expected, tcpAck, nil), false
	}
	p.expected += s.length()
	if p.health == nil && isHTTP2(s.data) && !p.closed {
		p.health = newHealth()
	}
	if p.health != nil {
		return p.check(h, s)
	}
	if len(s.data) > 0 && !p.closed && !isHTTP(s.data) {
		return wakeAndAnswer, h.reply(s, p.next, p.expected, tcpReset|tcpAck, nil), true
	}
	flags, data := byte(tcpAck), []byte(nil)
	if !p.closed { // it answers a request, and closes a connection that the kubelet has only opened
		if len(s.data) > 0 {
			data, flags = []byte(success), flags|tcpPush
		}
		flags |= tcpFin
		p.closed = true
	}
	reply = h.reply(s, p.next, p.expected, flags, data)
	p.next += uint32(len(data)) + uint32(flags&tcpFin)
	return answer, reply, false
}

// check answers a segment of a probe by gRPC. The kubelet closes the connection.
func (p *probe) check(h *host, s *segment) (v verdict, reply []byte, over bool) {
	data, err := p.health.take(s.data)
	if err != nil || len(data) > maxReply {
		return wakeAndAnswer, h.reply(s, p.next, p.expected, tcpReset|tcpAck, nil), true
	}
	flags := byte(tcpAck)
	if len(data) > 0 {
		flags |= tcpPush
	}
	if s.flags&tcpFin != 0 && !p.closed {
		p.closed = true
		flags |= tcpFin
	}
	reply = h.reply(s, p.next, p.expected, flags, data)
	p.next += uint32(len(data)) + uint32(flags&tcpFin)
	return answer, reply, false
}

// isHTTP reports whether data begins an HTTP request as the kubelet's probes send it.
func isHTTP(data []byte) bool {
	return bytes.HasPrefix(data, []byte("GET ")) || bytes.HasPrefix(data, []byte("HEAD "))
}

// room reports whether another probe can be answered. It forgets those that have ended without saying so.
func (ps *probes) room() bool {
	for key, p := range ps.all {
		if time.Since(p.begun) > probeTime {
			delete(ps.all, key)
		}
	}
	return len(ps.all) < maxProbes
}

func (ps *probes) set(key [2]netip.AddrPort, p *probe) {
	if ps.all == nil {
		ps.all = make(map[[2]netip.AddrPort]*probe)
	}
	ps.all[key] = p
}
