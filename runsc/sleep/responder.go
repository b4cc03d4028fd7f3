package sleep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"diapause.dev/runsc/netns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Responder answers the kubelet's probes for a pod whose sandbox waits for its containers: it has taken the pod's
// addresses, and has no network yet. The answers are those that a sleeping pod gives. It answers nobody else, wakes
// nothing and holds nothing: what comes for the pod waits in the sandbox's own sockets until the sandbox has loaded,
// and TCP with its sender. Its methods may be called concurrently.
type Responder struct {
	watcher
	sandbox muted
	prober  *closable
	isOwn   func(netip.Addr) bool // reports whether this node has an address
}

// closable is a prober that can be told to recognize no new probe.
type closable struct {
	Prober
	closed atomic.Bool
}

// IsProbe implements Prober.
func (c *closable) IsProbe(x Connection) bool { return !c.closed.Load() && c.Prober.IsProbe(x) }

// NewResponder answers probes at the interfaces of a recorded network until Close. Until then the packet sockets of the
// sandbox's process get no TCP.
func NewResponder(n *Network, prober Prober, sandbox int) (*Responder, error) {
	r := &Responder{prober: &closable{Prober: prober}, isOwn: isOwn}
	r.incoming, r.outgoing = r.take, func(*socket, []byte) {}
	ns, err := netns.Open(n.path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if r.sandbox, err = mute(sandbox); err != nil {
		return nil, err
	}
	if err := r.open(n, ns, r.prober); err != nil {
		return nil, errors.Join(err, r.sandbox.unmute())
	}
	r.begin()
	return r, nil
}

// Close ends the answers, and lets the sandbox have what comes. After an error the sandbox may be deaf.
func (r *Responder) Close() error {
	err := r.watcher.Close()
	sandbox := r.sandbox
	r.sandbox = nil
	if err = errors.Join(err, sandbox.unmute()); err != nil {
		return fmt.Errorf("end the answers to probes: %w", err)
	}
	return nil
}

// take answers a frame if it belongs to a probe, or if the node asks for the pod's hardware address.
func (r *Responder) take(s *socket, data []byte) {
	if reply := r.answer(s, data[virtioHeader:]); reply != nil {
		s.send(reply)
	}
}

// answer returns the answer to a frame, or nil. A connection of the kubelet that turns out to be no probe is reset.
func (r *Responder) answer(s *socket, frame []byte) []byte {
	if _, reply, mine := s.probes.take(&s.host, frame, asleep); mine {
		return reply
	}
	v, reply := s.host.look(frame)
	if v != answer || !r.isOwn(asker(frame)) {
		return nil
	}
	return reply
}

// asker returns the address of the neighbor that has sent a question for a hardware address, which look has answered.
func asker(frame []byte) netip.Addr {
	p := frame[etherHeader:]
	if binary.BigEndian.Uint16(frame[12:]) == typeARP {
		return netip.AddrFrom4([4]byte(p[14:]))
	}
	return netip.AddrFrom16([16]byte(p[8:]))
}

// isOwn reports whether this process's network namespace, the node's, has an address.
func isOwn(a netip.Addr) bool {
	if a.IsUnspecified() {
		return false
	}
	routes, err := netlink.RouteGet(a.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// Bounds of Drain: how long it waits, and how often it looks.
const (
	drainTime  = 200 * time.Millisecond
	drainPause = time.Millisecond
)

// Drain waits a little for the end of the probes that are under way. It begins no other: those wait for the sandbox.
func (r *Responder) Drain() {
	r.prober.closed.Store(true)
	for end := time.Now().Add(drainTime); r.busy() && time.Now().Before(end); {
		time.Sleep(drainPause)
	}
}

// busy reports whether a probe is under way.
func (r *Responder) busy() bool {
	for _, s := range r.sockets {
		if s.busy() {
			return true
		}
	}
	return false
}

func (s *socket) busy() bool {
	s.looking.Lock()
	defer s.looking.Unlock()
	for _, p := range s.probes.all {
		if !p.over() {
			return true
		}
	}
	return false
}
