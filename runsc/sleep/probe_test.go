package sleep

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// client is the other end of a connection, which sends what it is told to and reads the answers.
type client struct {
	t         *testing.T
	ps        *probes
	from, to  netip.AddrPort
	seq, ack  uint32
	resets    bool
	received  []byte
	fin       bool
	lastValue verdict
	now       stage
}

// kubelet is a prober. It lists the addresses, with their ports, of its connections; one end suffices.
type kubelet []string

func (k kubelet) IsProbe(c Connection) bool {
	return slices.Contains(k, c.From.String()) || slices.Contains(k, c.To.String())
}

func (kubelet) Over(Connection) bool { return false }

func (kubelet) Open([]netip.Addr) []Connection { return nil }

// toProbe returns a client of a pod whose prober recognizes it.
func toProbe(t *testing.T, from, to string) *client {
	return &client{
		t: t, ps: &probes{is: kubelet{"10.1.0.1:40000", "[fd00::1]:40000"}},
		from: netip.MustParseAddrPort(from), to: netip.MustParseAddrPort(to), seq: 100, now: asleep,
	}
}

// send sends a segment and takes the answer. It reports whether the segment was a probe's.
func (c *client) send(flags byte, data string) (mine bool) {
	c.t.Helper()
	// A host's answer to a segment in the other direction is a segment in this one.
	peer := &host{mac: [6]byte{2, 0, 0, 0, 0, 2}}
	f := peer.reply(&segment{mac: pod().mac, from: c.to, to: c.from}, c.seq, c.ack, flags, []byte(data))
	v, reply, mine := c.ps.take(pod(), f, c.now)
	c.lastValue = v
	s, ok := parseSegment(f)
	if !ok {
		c.t.Fatalf("not a segment: %x", f)
	}
	c.seq += s.length()
	if reply != nil {
		c.take(reply)
	}
	return mine
}

func (c *client) take(reply []byte) {
	c.t.Helper()
	s, ok := parseSegment(reply)
	if !ok || s.from != c.to || s.to != c.from || !bytes.Equal(reply[:6], []byte{2, 0, 0, 0, 0, 2}) {
		c.t.Fatalf("answer %+v, %v: %x", s, ok, reply)
	}
	end := len(reply) - tcpHeader - len(s.data)
	size := 2 * len(c.to.Addr().AsSlice())
	if sum := checksum(protoTCP, reply[end-size:end], reply[end:]); sum != 0 {
		c.t.Errorf("wrong checksum, by %x", sum)
	}
	if s.flags&tcpReset != 0 {
		c.resets = true
		return
	}
	if s.ack != c.seq {
		c.t.Errorf("acknowledged %d, want %d", s.ack, c.seq)
	}
	if s.flags&tcpSyn == 0 && s.length() > 0 && s.seq != c.ack {
		c.t.Errorf("sequence number %d, want %d", s.seq, c.ack)
	}
	c.received = append(c.received, s.data...)
	c.fin = c.fin || s.flags&tcpFin != 0
	if s.length() > 0 {
		c.ack = s.seq + s.length()
	}
}

func TestProbes(t *testing.T) {
	for _, tc := range []struct{ name, from, to string }{
		{"IPv4", "10.1.0.1:40000", "10.1.0.7:8080"}, {"IPv6", "[fd00::1]:40000", "[fd00::7]:8080"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			web := toProbe(t, tc.from, tc.to)
			web.send(tcpSyn, "")
			web.send(tcpAck, "")
			web.send(tcpAck|tcpPush, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
			if string(web.received) != success || !web.fin || web.resets {
				t.Errorf("answer %q, closed %v, reset %v", web.received, web.fin, web.resets)
			}
			web.send(tcpAck|tcpFin, "")
			web.over()
			plain := toProbe(t, tc.from, tc.to)
			plain.send(tcpSyn, "")
			plain.send(tcpAck, "")
			plain.send(tcpAck|tcpFin, "")
			plain.send(tcpAck, "")
			plain.over()
			if !plain.fin || plain.resets || len(plain.received) > 0 {
				t.Errorf("closed %v, reset %v, %q", plain.fin, plain.resets, plain.received)
			}
		})
	}
}

// TestReadinessFails: while a pod cannot be woken, its readiness probes fail, and no others, whatever it listens to.
func TestReadinessFails(t *testing.T) {
	failing := failures{
		{Kind: ProbeHTTP, Port: 8080, Target: "/ready?full=1"},
		{Kind: ProbeTCP, Port: 9090},
		{Kind: ProbeHTTP, Port: 8443, Target: "/"},
	}
	of := func(port uint16) (f failures) {
		for _, r := range failing {
			if r.Port == port {
				f = append(f, r)
			}
		}
		return f
	}
	for target, want := range map[string]string{
		"/ready?full=1": failure, "ready?full=1": failure, "/ready": success, "/": success, "/live": success,
	} {
		c := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8080")
		c.ps.failing = of
		c.send(tcpSyn, "")
		c.send(tcpAck|tcpPush, "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if string(c.received) != want || !c.fin || c.resets {
			t.Errorf("%s: answer %q, closed %v, reset %v", target, c.received, c.fin, c.resets)
		}
	}
	for to, resets := range map[string]bool{"10.1.0.7:8080": false, "10.1.0.7:9090": true} {
		c := toProbe(t, "10.1.0.1:40000", to)
		c.ps.failing = of
		c.send(tcpSyn, "")
		if c.resets != resets || c.lastValue != answer {
			t.Errorf("%s by TCP: reset %v, %v", to, c.resets, c.lastValue)
		}
	}
	secret := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8443")
	secret.ps.failing = of
	secret.send(tcpSyn, "")
	conn := tls.Client(&wire{client: secret}, &tls.Config{InsecureSkipVerify: true})
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != failure {
		t.Errorf("by HTTPS: %q, %v", got, err)
	}
}

// over checks that the waker knows that both sides are closed, and has nothing else of the connection.
func (c *client) over() {
	c.t.Helper()
	if p := c.ps.all[Connection{c.from, c.to}]; p == nil || !p.over() || p.dialog != nil {
		c.t.Errorf("the connection is not over: %+v", p)
	}
}

// again sends the last segment again, as a kernel does if the answer is late. It reports whether it is a probe's, and
// wakes no pod.
func (c *client) again(flags byte, data string) (silent bool) {
	c.t.Helper()
	c.seq -= uint32(len(data))
	if flags&(tcpSyn|tcpFin) != 0 {
		c.seq--
	}
	return c.send(flags, data) && c.lastValue == answer
}

// TestProbesOnABusyNode: the waker and the kubelet are late. The kubelet's kernel sends segments again, and it
// acknowledges the end of the answer before the kubelet closes the connection. That wakes no pod.
func TestProbesOnABusyNode(t *testing.T) {
	const get = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	web := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8080")
	web.send(tcpSyn, "")
	first := web.ack
	if !web.again(tcpSyn, "") || web.ack != first {
		t.Errorf("a second answer to the beginning: %d, then %d", first, web.ack)
	}
	web.send(tcpAck, "")
	web.send(tcpAck|tcpPush, get)
	if !web.again(tcpAck|tcpPush, get) || string(web.received) != success {
		t.Errorf("what was asked twice is answered %q", web.received)
	}
	web.send(tcpAck, "")
	if !web.send(tcpAck|tcpFin, "") || web.lastValue != answer {
		t.Error("the end of a probe whose answer was acknowledged before is traffic")
	}
	if !web.again(tcpAck|tcpFin, "") {
		t.Error("the end of a probe that is sent again is traffic")
	}
	web.over()
}

// TestManyProbes: probes that are over take no room of others, and nobody else's connection between the same ends is
// taken for one.
func TestManyProbes(t *testing.T) {
	c := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8080")
	for port := range 4 * maxProbes {
		c.to = netip.AddrPortFrom(c.to.Addr(), uint16(1000+port))
		if !c.send(tcpSyn, "") {
			t.Fatalf("probe %d wakes the pod", port)
		}
		c.send(tcpAck|tcpFin, "")
	}
	if n := len(c.ps.all); n > maxProbes {
		t.Errorf("%d probes are remembered", n)
	}
	c.ps.is = kubelet{}
	c.seq += 1000
	if c.send(tcpSyn, "") || c.send(tcpAck|tcpPush, "GET / HTTP/1.1\r\n\r\n") {
		t.Error("a connection of somebody else is taken")
	}
}

// TestProbeOfAnotherKind has the kubelet ask for what the waker cannot answer: the pod wakes.
func TestProbeOfAnotherKind(t *testing.T) {
	for _, data := range []string{
		"SSH-2.0-OpenSSH\r\n",
		"\x16\x03\x01\x00\x02\x63\x00",                   // TLS, but no message that there is
		"\x16\x03\x01\x40\x00" + strings.Repeat("x", 32), // TLS, not whole
	} {
		c := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8080")
		c.send(tcpSyn, "")
		for range maxSecret/len(data) + 1 {
			if c.send(tcpAck|tcpPush, data); c.resets {
				break
			}
		}
		if c.lastValue != wakeAndAnswer || !c.resets || len(c.ps.all) != 0 {
			t.Errorf("%.10q: verdict %d, reset %v, %d left", data, c.lastValue, c.resets, len(c.ps.all))
		}
	}
}

// wire is a client as a connection.
type wire struct {
	net.Conn
	*client
}

func (w *wire) Write(p []byte) (int, error) {
	w.send(tcpAck|tcpPush, string(p))
	return len(p), nil
}

func (w *wire) Read(p []byte) (int, error) {
	if len(w.received) == 0 {
		return 0, io.EOF
	}
	n := copy(p, w.received)
	w.received = w.received[n:]
	return n, nil
}

func (w *wire) Close() error                     { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// TestSecretProbes probes by HTTPS, as the kubelet does.
func TestSecretProbes(t *testing.T) {
	for _, config := range []*tls.Config{
		{NextProtos: []string{"h2", "http/1.1"}},
		{MaxVersion: tls.VersionTLS12},
		{CurvePreferences: []tls.CurveID{tls.CurveP256}},
	} {
		config.InsecureSkipVerify = true
		c := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8443")
		c.send(tcpSyn, "")
		conn := tls.Client(&wire{client: c}, config)
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || string(got) != success || !c.fin || c.resets {
			t.Errorf("answer %q, %v, closed %v, reset %v", got, err, c.fin, c.resets)
		}
		conn.Close()
		c.send(tcpAck|tcpFin, "")
		c.over()
	}
}

// TestSecretProbesEnd has probes by HTTPS stop half-way, and looks for what they have left.
func TestSecretProbesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8443")
		for port := range 3 {
			c.from = netip.AddrPortFrom(c.from.Addr(), 40000)
			c.to = netip.AddrPortFrom(c.to.Addr(), uint16(8443+port))
			c.send(tcpSyn, "")
			c.send(tcpAck|tcpPush, "\x16\x03\x01")
		}
		c.send(tcpReset, "")
		c.send(tcpSyn, "")
		c.ps.close()
		if len(c.ps.all) != 0 {
			t.Errorf("%d connections are left", len(c.ps.all))
		}
	}) // it fails if a coroutine is left
}

// TestNotAProbe sends what is nobody's probe.
func TestNotAProbe(t *testing.T) {
	other := toProbe(t, "10.1.0.1:40001", "10.1.0.7:8080")
	if other.send(tcpSyn, "") || other.send(tcpAck|tcpPush, "GET / HTTP/1.1\r\n\r\n") {
		t.Error("a connection of somebody else is taken")
	}
	late := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8080")
	if late.send(tcpAck|tcpPush, "GET / HTTP/1.1\r\n\r\n") {
		t.Error("a connection is taken that was there before")
	}
	early := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8080")
	early.now = running
	if !early.send(tcpSyn, "") || !early.send(tcpAck, "") || early.resets {
		t.Error("a probe of a pod that is awake is traffic")
	}
	early.now = asleep
	early.send(tcpAck|tcpPush, "GET / HTTP/1.1\r\n\r\n")
	if !early.resets {
		t.Error("a probe that the sandbox had answered goes on without it")
	}
	if !early.send(tcpAck|tcpFin, "") || early.lastValue != answer {
		t.Error("the end of such a probe, sent before the reset has come, is traffic")
	}
}

// ended is a prober for which every connection is over, and nobody knows whose it was.
type ended struct{ kubelet }

func (ended) Over(Connection) bool { return true }

// TestOver has a connection begin that its process has closed before the first segment is looked at, as the kubelet
// does on a busy node. It is no traffic for a pod that runs. The snapshot of one that is paused lacks what it has
// brought.
func TestOver(t *testing.T) {
	for now, want := range map[stage]bool{running: true, paused: false, asleep: false} {
		c := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8080")
		c.ps.is, c.now = ended{}, now
		if mine := c.send(tcpSyn, ""); mine != want {
			t.Errorf("stage %d: taken for a probe: %t", now, mine)
		}
		if mine := c.send(tcpAck|tcpFin, ""); mine != want {
			t.Errorf("stage %d: its end is taken for a probe's: %t", now, mine)
		}
		c.ps.is, c.now, c.seq = kubelet{}, asleep, 900 // another connection from the same port
		if c.send(tcpSyn, "") || c.send(tcpAck|tcpPush, "GET / HTTP/1.1\r\n\r\n") {
			t.Errorf("stage %d: what comes from the same port later is taken for a probe", now)
		}
	}
}

// TestHostileProbes opens more connections than are answered at a time, and repeats and reorders segments.
func TestHostileProbes(t *testing.T) {
	c := toProbe(t, "10.1.0.1:40000", "10.1.0.7:8080")
	taken := 0
	for port := range 4 * maxProbes {
		c.to = netip.AddrPortFrom(c.to.Addr(), uint16(1000+port))
		if c.send(tcpSyn, "") {
			taken++
		}
	}
	if taken != maxProbes || len(c.ps.all) != maxProbes {
		t.Errorf("%d connections are taken, %d kept, want %d", taken, len(c.ps.all), maxProbes)
	}
	c = toProbe(t, "10.1.0.1:40000", "10.1.0.7:8080")
	c.send(tcpSyn, "")
	c.seq += 1000
	f := (&host{}).reply(&segment{from: c.to, to: c.from}, c.seq, c.ack, tcpAck, []byte("GET /"))
	v, reply, _ := c.ps.take(pod(), f, asleep)
	if s, ok := parseSegment(reply); v != answer || !ok || len(s.data) > 0 || s.flags != tcpAck {
		t.Errorf("verdict %d, answer %+v to a segment out of order", v, s)
	}
}

// everybody is a prober for which every connection is the kubelet's.
type everybody struct{ kubelet }

func (everybody) IsProbe(Connection) bool { return true }

func FuzzProbes(f *testing.F) {
	f.Add(frame(f, toPod+"0800 45000028 00004000 40060000 "+from4+pod4+syn))
	f.Add(frame(f, toPod+"86dd 60000000 0014 06 40"+from6+pod6+syn))
	f.Fuzz(func(t *testing.T, b []byte) {
		ps := &probes{is: everybody{}}
		for _, now := range []stage{asleep, asleep, paused, running} {
			v, reply, mine := ps.take(pod(), b, now)
			if !mine && reply != nil || len(reply) > 256 || len(ps.all) > 1 {
				t.Errorf("verdict %d, a reply of %d bytes, %d connections", v, len(reply), len(ps.all))
			}
			if len(reply) > 0 {
				if n := binary.BigEndian.Uint16(reply[12:]); n != typeIPv4 && n != typeIPv6 {
					t.Errorf("reply of type %x", n)
				}
			}
		}
	})
}
