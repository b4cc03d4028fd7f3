package sleep

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// Connection is a TCP connection to a pod. From is the address of its other end, To the pod's.
type Connection struct{ From, To netip.AddrPort }

// Prober knows the TCP connections by which the kubelet of this node probes a pod: package kubelet has it. Its methods
// may be called concurrently.
type Prober interface {
	// IsProbe reports whether a connection is one. It may only just have begun.
	IsProbe(Connection) bool
	// Over reports whether a process of this node had the connection, and has closed it after the pod acknowledged all
	// that it sent. Then nobody waits for an answer.
	Over(Connection) bool
	// Open returns those that are open to the pod's addresses, be they probes or over, of which segments may still come.
	Open(pod []netip.Addr) []Connection
}

// Bounds of probes that are answered at a time. Beyond maxProbes, a connection of the kubelet wakes the pod. Those that
// are over are remembered for probeTime, or until there is no room: on a busy node segments of them are sent again.
const (
	maxProbes = 64
	probeTime = time.Minute
)

// maxReply bounds the data in one segment of an answer, in bytes. It fits into any network of IPv6.
const maxReply = 1200

// probes answers the kubelet's probes for a pod that sleeps: it accepts a connection, answers an HTTP request with
// success, also over TLS, and closes the connection. It answers a check of health by gRPC likewise. Readiness probes
// that are to fail get a failure. What is neither wakes the pod, and the connection is reset: the kubelet probes again.
// It belongs to one goroutine.
//
// It is no whole TCP: a segment that is not the next one is answered with what was received so far, and nothing is
// sent again by itself. Between two ends of a veth pair segments neither get lost nor overtake each other.
type probes struct {
	is      Prober                     // nil: nothing is a probe
	failing func(port uint16) failures // nil: none fails
	all     map[Connection]*probe
}

// probe is one connection.
type probe struct {
	first, begin   uint32 // sequence numbers of the first segment of either side: the pod's, and the kubelet's
	next, expected uint32 // sequence numbers: of what is sent next, and of what is to come
	closed, ended  bool   // the pod's side is, and the kubelet's
	foreign        bool   // the sandbox had it before the pod slept
	failing        failures
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

// begin returns the dialog that begins with data, in which some readiness probes fail.
func begin(data []byte, failing failures) dialog {
	switch {
	case isHTTP2(data):
		return newHealth(failing)
	case isTLS(data):
		return newSecret(failing)
	}
	return plain{failing}
}

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

// take decides about a frame. Before the pod sleeps, the sandbox answers its probes itself. mine is false if the frame
// belongs to no probe, and is to be treated like any other.
//
// A probe may be over before its first segment is looked at, if the node is busy, and then it is not known whose it
// was. Before the sandbox is paused, that does not matter: the snapshot has all that the connection has brought.
func (ps *probes) take(h *host, frame []byte, now stage) (v verdict, reply []byte, mine bool) {
	if ps.is == nil {
		return ignore, nil, false
	}
	s, ok := parseSegment(frame)
	if !ok || !h.addresses[s.to.Addr()] {
		return ignore, nil, false
	}
	key := Connection{s.from, s.to}
	p := ps.all[key]
	if s.flags&(tcpSyn|tcpAck|tcpReset) == tcpSyn {
		if p != nil && p.begin == s.seq && !p.foreign { // it is sent again: the answer was late
			return answer, h.reply(&s, p.first, s.seq+s.length(), tcpSyn|tcpAck, nil), true
		}
		if p != nil && p.goesOn(&s) || ps.is.IsProbe(key) || now == running && ps.is.Over(key) {
			return ps.start(h, key, &s, now == asleep)
		}
		ps.forget(key)
		return ignore, nil, false
	}
	if p == nil {
		return ignore, nil, false
	}
	if s.flags&tcpReset != 0 {
		ps.forget(key)
		return ignore, nil, true
	}
	if p.foreign {
		if now != asleep || s.length() == 0 {
			return ignore, nil, true
		}
		// It fails once, and the next one is answered. It is not forgotten: segments may be on their way already.
		return answer, h.reply(&s, s.ack, s.seq+s.length(), tcpReset|tcpAck, nil), true
	}
	v, reply = p.take(h, &s)
	if v == wakeAndAnswer {
		ps.forget(key)
	}
	return v, reply, true
}

// start begins a probe with its first segment, if there is room for it.
func (ps *probes) start(h *host, key Connection, s *segment, slept bool) (v verdict, reply []byte, mine bool) {
	if !ps.room() {
		return ignore, nil, false
	}
	p := &probe{
		first: rand.Uint32(), begin: s.seq, expected: s.seq + s.length(), foreign: !slept, begun: time.Now(),
	}
	p.next = p.first + 1
	ps.set(key, p)
	if p.foreign {
		return ignore, nil, true
	}
	if ps.failing != nil {
		p.failing = ps.failing(s.to.Port())
	}
	if p.failing.of(ProbeTCP) {
		ps.forget(key)
		return answer, h.reply(s, 0, p.expected, tcpReset|tcpAck, nil), true
	}
	return answer, h.reply(s, p.first, p.expected, tcpSyn|tcpAck, nil), true
}

// goesOn reports whether a first segment belongs to the probe, or to another one of the kubelet. One that the sandbox
// had may be over, and its port somebody else's.
func (p *probe) goesOn(s *segment) bool { return !p.over() && (!p.foreign || p.begin == s.seq) }

// over reports whether both sides are closed.
func (p *probe) over() bool { return p.closed && p.ended }

// take answers a segment of a probe.
func (p *probe) take(h *host, s *segment) (v verdict, reply []byte) {
	if s.length() == 0 { // it acknowledges what was sent
		return ignore, nil
	}
	if s.seq != p.expected {
		return answer, h.reply(s, p.next, p.expected, tcpAck, nil)
	}
	p.expected += s.length()
	p.ended = p.ended || s.flags&tcpFin != 0
	flags, data, last := byte(tcpAck), []byte(nil), p.ended
	if len(s.data) > 0 && !p.closed {
		var err error
		if data, last, err = p.say(s.data, last); err != nil || len(data) > maxReply {
			return wakeAndAnswer, h.reply(s, p.next, p.expected, tcpReset|tcpAck, nil)
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
	if p.over() && p.dialog != nil {
		p.dialog.end()
		p.dialog = nil
	}
	return answer, reply
}

// say answers what has come. Last says that the connection is to be closed then.
func (p *probe) say(data []byte, fin bool) (reply []byte, last bool, err error) {
	if p.dialog == nil {
		p.dialog = begin(data, p.failing)
	}
	reply, last, err = p.dialog.take(data)
	return reply, last || fin, err
}

// room makes room for another probe, and reports whether it can be answered. It forgets those that have begun long ago,
// and if need be the oldest of those that are over.
func (ps *probes) room() bool {
	var oldest *probe
	var which Connection
	for key, p := range ps.all {
		switch {
		case time.Since(p.begun) > probeTime:
			ps.forget(key)
		case p.over() && (oldest == nil || p.begun.Before(oldest.begun)):
			oldest, which = p, key
		}
	}
	if len(ps.all) >= maxProbes && oldest != nil {
		ps.forget(which)
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
