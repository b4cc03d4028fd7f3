package sleep

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

// pod is the host that the tests are about.
func pod() *host {
	return &host{mac: [6]byte{2, 0, 0, 0, 0, 1}, addresses: map[netip.Addr]bool{
		netip.MustParseAddr("10.1.0.7"): true, netip.MustParseAddr("fd00::7"): true,
	}}
}

// frame returns the bytes of hex digits with blanks between them.
func frame(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.ReplaceAll(text, " ", ""), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	toPod  = "020000000001 020000000002 "
	toAll  = "ffffffffffff 020000000002 "
	from4  = "0a010001 "
	pod4   = "0a010007 "
	other4 = "0a010008 "
	from6  = "fd000000000000000000000000000001 "
	pod6   = "fd000000000000000000000000000007 "
	syn    = "c0001f90 00000001 00000000 5002 ffff 0000 0000"
	rst    = "c0001f90 00000001 00000000 5004 ffff 0000 0000"
	udp    = "c000 0035 0008 0000 "
)

func TestLook(t *testing.T) {
	ip4 := func(proto, fragment, to, rest string) string {
		return toPod + "0800 45000028 0000" + fragment + " 40" + proto + "0000 " + from4 + to + rest
	}
	ip6 := func(next, to, rest string) string {
		return toPod + "86dd 60000000 0014" + next + "40 " + from6 + to + rest
	}
	for _, tc := range []struct {
		name, frame string
		want        verdict
	}{
		{"TCP, a new connection", ip4("06", "4000", pod4, syn), wake},
		{"TCP, a reset", ip4("06", "4000", pod4, rst), keep},
		{"TCP, to another address", ip4("06", "4000", other4, syn), ignore},
		{"TCP, cut off", ip4("06", "4000", pod4, "c000"), keep},
		{"UDP", ip4("11", "0000", pod4, "c000 0035 0008 0000"), wake},
		{"UDP, a later fragment", ip4("11", "0010", pod4, "c000 0035 0008 0000"), keep},
		{"echo request", ip4("01", "0000", pod4, "0800 0000 0001 0001"), wake},
		{"unreachable", ip4("01", "0000", pod4, "0301 0000 0000 0000"), keep},
		{"TCP over IPv6", ip6("06", pod6, syn), wake},
		{"echo request over IPv6", ip6("3a", pod6, "8000 0000 0001 0001"), wake},
		{"neighbour's advertisement", ip6("3a", pod6, "8800 0000 4000 0000"), ignore},
		{"IPv6, to another address", ip6("06", from6, syn), ignore},
		{"UDP over IPv6, the first fragment", ip6("2c", pod6, "11 00 0001 00000007"+udp), wake},
		{"UDP over IPv6, a later fragment", ip6("2c", pod6, "11 00 05a8 00000007"+udp), keep},
		{
			"UDP over IPv6, the first fragment of a packet with options",
			ip6("00", pod6, "2c00010400000000 3c00000100000007 1101"+strings.Repeat("00", 14)+udp), wake,
		},
		{"TCP over IPv6, with hop-by-hop options", ip6("00", pod6, "0600010400000000"+syn), wake},
		{"TCP over IPv6, with a routing header", ip6("2b", pod6, "0600000000000000"+syn), wake},
		{"TCP over IPv6, with destination options", ip6("3c", pod6, "0600010400000000"+syn), wake},
		{"TCP over IPv6, a reset with destination options", ip6("3c", pod6, "0600010400000000"+rst), keep},
		{"echo request over IPv6, with hop-by-hop options", ip6("00", pod6, "3a00050200000100 8000 0000 0001 0001"), wake},
		{"IPv6, no next header", ip6("3b", pod6, ""), keep},
		{"IPv6, options to another address", ip6("00", from6, "0600010400000000"+syn), ignore},
		{"no header length", toPod + "0800 40000028 00004000 40060000 " + from4 + pod4 + syn, ignore},
		{"header longer than the packet", toPod + "0800 4f000028 00004000 40060000 " + from4 + pod4, ignore},
		{"empty", "", ignore},
		{"unknown protocol", toPod + "88cc 00", ignore},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, reply := pod().look(frame(t, tc.frame)); got != tc.want || reply != nil {
				t.Errorf("verdict %d, reply %x, want %d", got, reply, tc.want)
			}
		})
	}
}

func TestAnswerARP(t *testing.T) {
	ask := func(target string) []byte {
		return frame(t, toAll+"0806 0001 0800 06 04 0001 020000000002 "+from4+"000000000000 "+target)
	}
	v, reply := pod().look(ask(pod4))
	want := frame(t, "020000000002 020000000001 0806 0001 0800 06 04 0002 020000000001 "+pod4+"020000000002 "+from4)
	if v != answer || !bytes.Equal(reply, want) {
		t.Errorf("verdict %d, reply\n%x, want\n%x", v, reply, want)
	}
	if v, _ := pod().look(ask(other4)); v != ignore {
		t.Errorf("verdict %d about another address", v)
	}
}

func TestAnswerSolicitation(t *testing.T) {
	ask := func(from, hops, target string) []byte {
		return frame(t, "3333ff000007 020000000002 86dd 60000000 0018 3a "+hops+from+
			"ff0200000000000000000001ff000007 8700 0000 00000000 "+target)
	}
	v, reply := pod().look(ask(from6, "ff", pod6))
	want := frame(t, "020000000002 020000000001 86dd 60000000 0020 3a ff"+pod6+from6+
		"8800 0000 60000000 "+pod6+"0201 020000000001")
	if v != answer || len(reply) != len(want) {
		t.Fatalf("verdict %d, reply\n%x, want\n%x", v, reply, want)
	}
	message := reply[etherHeader+ipv6Header:]
	if checksum(protoICMPv6, reply[etherHeader+8:etherHeader+ipv6Header], message) != 0 {
		t.Errorf("wrong checksum %x", message[2:4])
	}
	copy(reply[etherHeader+ipv6Header+2:], []byte{0, 0})
	if !bytes.Equal(reply, want) {
		t.Errorf("reply\n%x, want\n%x", reply, want)
	}
	for what, f := range map[string][]byte{
		"another address":     ask(from6, "ff", from6),
		"from another subnet": ask(from6, "40", pod6),
		"cut off":             ask(from6, "ff", "")[:60],
	} {
		if v, _ := pod().look(f); v != ignore {
			t.Errorf("%s: verdict %d", what, v)
		}
	}
	v, reply = pod().look(ask(strings.Repeat("00", 16), "ff", pod6))
	if v != answer || !bytes.Equal(reply[:6], frame(t, "333300000001")) {
		t.Errorf("who asks whether it may take the address: verdict %d, %x", v, reply)
	}
}

// TestHostileExtensions has packets come whose extension headers are cut off, or too many. They are held, and wake
// nobody.
func TestHostileExtensions(t *testing.T) {
	const options, last = "3c00010400000000", "1100010400000000"
	for _, tc := range []struct {
		name, next, rest string
		want             verdict
	}{
		{"as many as are read", "3c", strings.Repeat(options, maxExtensions-1) + last + udp, wake},
		{"too many", "3c", strings.Repeat(options, maxExtensions) + last + udp, keep},
		{"without end", "3c", strings.Repeat(options, 8000), keep},
		{"many fragment headers", "2c", strings.Repeat("2c00000100000007", maxExtensions) + "1100000100000007" + udp, keep},
		{"longer than the packet", "3c", "11ff010400000000" + udp, keep},
		{"cut off", "00", "1100", keep},
		{"cut off after one byte", "00", "11", keep},
		{"a fragment header that is cut off", "2c", "11000001", keep},
		{"none at all", "2b", "", keep},
	} {
		f := frame(t, toPod+"86dd 60000000 0000"+tc.next+"40 "+from6+pod6+tc.rest)
		if got, reply := pod().look(f); got != tc.want || reply != nil {
			t.Errorf("%s: verdict %d, reply %x, want %d", tc.name, got, reply, tc.want)
		}
	}
}

// TestSegmentBeyondExtensions reads a TCP segment behind extension headers. A part of one is none.
func TestSegmentBeyondExtensions(t *testing.T) {
	segment := func(next, extension string) string {
		return toPod + "86dd 60000000 001c" + next + "40 " + from6 + pod6 + extension + syn
	}
	if s, ok := parseSegment(frame(t, segment("3c", "0600010400000000"))); !ok || s.seq != 1 || s.to.Port() != 8080 {
		t.Errorf("with destination options: %+v, %v", s, ok)
	}
	if s, ok := parseSegment(frame(t, segment("2c", "0600000100000007"))); ok {
		t.Errorf("a first fragment is taken for %+v", s)
	}
}

// TestHostileFlood has more packets come than may be held.
func TestHostileFlood(t *testing.T) {
	var small, large held
	for i := range 5 * maxFrames {
		small.add([]byte{byte(i), byte(i >> 8)})
	}
	if len(small.frames) != maxFrames || small.dropped != 4*maxFrames {
		t.Errorf("%d frames held, %d dropped", len(small.frames), small.dropped)
	}
	if first := small.frames[0]; int(first[0])|int(first[1])<<8 != 4*maxFrames {
		t.Errorf("the oldest held is %x", first)
	}
	for range 100 {
		large.add(make([]byte, 64<<10))
	}
	if large.bytes > maxBytes || len(large.frames)*(64<<10) != large.bytes || large.dropped+len(large.frames) != 100 {
		t.Errorf("%d frames, %d bytes held, %d dropped", len(large.frames), large.bytes, large.dropped)
	}
}

func FuzzLook(f *testing.F) {
	f.Add(frame(f, toPod+"0800 45000028 00004000 40060000 "+from4+pod4+syn))
	f.Add(frame(f, toAll+"0806 0001 0800 06 04 0001 020000000002 "+from4+"000000000000 "+pod4))
	f.Add(frame(f, toPod+"86dd 60000000 0018 3a ff"+from6+pod6+"8700 0000 00000000 "+pod6))
	f.Add(frame(f, toPod+"86dd 60000000 001c 2c40"+from6+pod6+"3c00000100000007 1100010400000000"+udp))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, reply := pod().look(b)
		if (v == answer) != (reply != nil) || len(reply) > 128 {
			t.Errorf("verdict %d, a reply of %d bytes", v, len(reply))
		}
	})
}

func TestHostileOrders(t *testing.T) {
	for _, text := range []string{
		"", "{", `{"verb":"dance"}`, `{"verb":"fall"}`, `{"verb":"fall","holder":"x","image":"relative"}`,
		`{"verb":"watch","containers":["../x"]}`, `{"verb":"watch","containers":[".."]}`, `{"verb":"end","status":-1}`,
		`{"verb":"watch","containers":["` + strings.Repeat("x", maxID+1) + `"]}`,
		`{"verb":"watch","containers":["a"` + strings.Repeat(`,"a"`, maxContainers) + `]}`,
		`{"verb":"wake","cause":"` + strings.Repeat("x", maxOrder) + `"}`,
	} {
		if o, err := Parse(text); err == nil {
			t.Errorf("%.80s is taken for %+v", text, o)
		}
	}
	o := Order{Verb: Watch, Containers: []string{"a", "b"}}
	if got, err := Parse(o.String()); err != nil || got.String() != o.String() {
		t.Errorf("%+v, %v", got, err)
	}
}
