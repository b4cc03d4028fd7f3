package sleep

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// Connection is a TCP connection to a pod. From is the address of its other end, To the pod's.
type Connection struct{ From, To netip.AddrPort }

// Prober knows the TCP connections by which the kubelet of this node probes a pod. Its methods may be called
// concurrently.
type Prober interface {
	// IsProbe reports whether a connection is one. It may only just have begun.
	IsProbe(Connection) bool
	// Open returns those that are open to the pod's addresses.
	Open(pod []netip.Addr) []Connection
}

// Bounds of probes that are answered at a time. Beyond maxProbes, a connection of the kubelet wakes the pod.
const (
	maxProbes = 64
	probeTime = time.Minute
)

// maxReply bounds the data in one segment of an answer, in bytes. It fits into any network of IPv6.
const maxReply = 1200

// success answers an HTTP probe.
const success = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

// probes answers the kubelet's probes for a pod that sleeps: it accepts a connection, answers an HTTP request with
// success, also over TLS, and closes the connection. It answers a check of health by gRPC likewise. What is neither
// wakes the pod, and the connection is reset: the kubelet probes again. It belongs to one goroutine.
//
// It is no whole TCP: a segment that is not the next one is answered with what was received so far, and nothing is
// sent again by itself. Between two ends of a veth pair segments neither get lost nor overtake each other.
type probes struct {
	is  Prober // nil: nothing is a probe
	all map[Connection]*probe
}

// probe is one connection.
type probe struct {
	next, expected uint32 // sequence numbers: of what is sent next, and of what is to come
	closed         bool   // the pod's side is
	foreign        bool   // the sandbox had it before the pod slept
	dialog         dialog // nil: nothing was asked yet
	begun          time.Time
}

// dialog is the pod's side of what is said on a connection.
type dialog interface {
	// take takes what has come next, and returns what is to be sent. Last says that the connection is to be closed
	// then. After an error it is of no use any more.
	take(data []byte) (reply []byte, last bool, err error)
	// end frees what the dialog holds.
	end()
}

// errNoProbe is the error for what the kubelet's probes do not say.
var errNoProbe = errors.New("not a probe")

// begin returns the dialog that begins with data.
func begin(data []byte) dialog {
	switch {
	case isHTTP2(data):
		return newHealth()
	case isTLS(data):
		return newSecret()
	}
	return plain{}
}

// plain is a dialog by HTTP.
type plain struct{}

func (plain) take(data []byte) (reply []byte, last bool, err error) {
	if !isHTTP(data) {
		return nil, false, errNoProbe
	}
	return []byte(success), true, nil
}

func (plain) end() {}

// note notes the probes that are under way when the pod begins to be watched: the sandbox has them.
func (ps *probes) note(h *host) {
	if ps.is == nil {
		return
	}
	for _, c := range ps.is.Open(slices.Collect(maps.Keys(h.addresses))) {
		if !ps.room() {
			return
		}
		ps.set(c, &probe{foreign: true, begun: time.Now()})
	}
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
	key := Connection{s.from, s.to}
	p := ps.all[key]
	if s.flags&(tcpSyn|tcpAck|tcpReset) == tcpSyn && ps.room() && (p != nil || ps.is.IsProbe(key)) {
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
		ps.forget(key)
		return ignore, nil, true
	}
	if p.foreign {
		if !asleep || s.length() == 0 {
			return ignore, nil, true
		}
		// It fails once, and the next one is answered. It is not forgotten: segments may be on their way already.
		return answer, h.reply(&s, s.ack, s.seq+s.length(), tcpReset|tcpAck, nil), true
	}
	v, reply, over := p.take(h, &s)
	if over {
		ps.forget(key)
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
	flags, data, last := byte(tcpAck), []byte(nil), s.flags&tcpFin != 0
	if len(s.data) > 0 && !p.closed {
		var err error
		if data, last, err = p.say(s.data, last); err != nil || len(data) > maxReply {
			return wakeAndAnswer, h.reply(s, p.next, p.expected, tcpReset|tcpAck, nil), true
		}
	}
	if len(data) > 0 {
		flags |= tcpPush
	}
	if last && !p.closed {
		p.closed = true
		flags |= tcpFin
	}
	reply = h.reply(s, p.next, p.expected, flags, data)
	p.next += uint32(len(data)) + uint32(flags&tcpFin)
	return answer, reply, false
}

// say answers what has come. Last says that the connection is to be closed then.
func (p *probe) say(data []byte, fin bool) (reply []byte, last bool, err error) {
	if p.dialog == nil {
		p.dialog = begin(data)
	}
	reply, last, err = p.dialog.take(data)
	return reply, last || fin, err
}

// isHTTP reports whether data begins an HTTP request as the kubelet's probes send it.
func isHTTP(data []byte) bool {
	return bytes.HasPrefix(data, []byte("GET ")) || bytes.HasPrefix(data, []byte("HEAD "))
}

// room reports whether another probe can be answered. It forgets those that have ended without saying so.
func (ps *probes) room() bool {
	for key, p := range ps.all {
		if time.Since(p.begun) > probeTime {
			ps.forget(key)
		}
	}
	return len(ps.all) < maxProbes
}

// set notes a new connection, in the place of an earlier one between the same ends.
func (ps *probes) set(key Connection, p *probe) {
	ps.forget(key)
	if ps.all == nil {
		ps.all = make(map[Connection]*probe)
	}
	ps.all[key] = p
}

// forget forgets a connection.
func (ps *probes) forget(key Connection) {
	if p := ps.all[key]; p != nil && p.dialog != nil {
		p.dialog.end()
	}
	delete(ps.all, key)
}

// close forgets all connections.
func (ps *probes) close() {
	for key := range ps.all {
		ps.forget(key)
	}
}
