package traffic

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

// frame returns bytes that are written in hexadecimal, with spaces where they help.
func frame(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strip(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func strip(text string) string { return strings.ReplaceAll(text, " ", "") }

const (
	one  = "0a58 0af4 0105 0a58 0af4 0101 " // to the pod alone
	one4 = one + "0800 4500 0034 0000 4000 40"
	many = "ffff ffff ffff 0a58 0af4 0101 "
)

// TestFlowOf reads frames as they come in clusters.
func TestFlowOf(t *testing.T) {
	gateway, six := netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("fd00::1")
	const v4, v4Part = "0800 4500 0034 0000 4000 40", "0800 4500 0034 0000 2001 40"
	const addresses, addresses6 = " 0000 0af40101 0af40105 ",
		"fd000000 00000000 00000000 00000001 fd000000 00000000 00000000 00000005 "
	for _, tt := range []struct {
		name, frame string
		want        Flow
	}{
		{"TCP", one + v4 + "06" + addresses + "9c40 1f90 00000000", Flow{"TCP", gateway, 8080, false}},
		{
			"with options", one + "0800 4600 0034 0000 4000 4011" + addresses + "94040000 9c40 0035",
			Flow{"UDP", gateway, 53, false},
		},
		{
			"a header that is too short", one + "0800 4100 0034 0000 4000 4011" + addresses + "9c40 0035",
			Flow{"UDP", gateway, 0, false},
		},
		{"a later fragment", one + v4Part + "11" + addresses + "9c40 0035", Flow{"UDP", gateway, 0, false}},
		{"ICMP", one + v4 + "01" + addresses + "0800 0000", Flow{"ICMP", gateway, 0, false}},
		{"SCTP", one + v4 + "84" + addresses + "9c40 0007", Flow{"SCTP", gateway, 7, false}},
		{"another protocol", one + v4 + "2f" + addresses, Flow{"IP 47", gateway, 0, false}},
		{
			"a question for an address", many + "0806 0001 0800 0604 0001 0a580af40101 0af40101 000000000000 0af40105",
			Flow{"ARP", gateway, 0, true},
		},
		{"IPv6", one + "86dd 60000000 0014 06 40" + addresses6 + "9c40 1f90", Flow{"TCP", six, 8080, false}},
		{
			"solicitation", "3333 ff00 0005 0a58 0af4 0101 86dd 60000000 0018 3a ff" + addresses6 + "8700",
			Flow{"ICMPv6", six, 0, true},
		},
		{"LLDP", "0180 c200 000e 0a58 0af4 0101 88cc 02", Flow{"Ethernet 35020", netip.Addr{}, 0, true}},
		{"cut off in IPv4", one + "0800 4500", Flow{"Ethernet 2048", netip.Addr{}, 0, false}},
		{"cut off in TCP", one + v4 + "06" + addresses + "9c40", Flow{"TCP", gateway, 0, false}},
		{"nothing", "", Flow{Protocol: "not Ethernet"}},
	} {
		if got := flowOf(frame(t, tt.frame)); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestHostileFlood: who sends from ever new addresses gets no more memory than maxFlows kinds.
func TestHostileFlood(t *testing.T) {
	seen := make(tally)
	for i := range 10 * maxFlows {
		seen.add(Flow{Protocol: "UDP", From: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
	}
	all := seen.counts()
	if len(all) != maxFlows+1 || all[0] != (Count{others, 9 * maxFlows}) {
		t.Errorf("%d kinds, first %+v", len(all), all[0])
	}
}

func FuzzFlowOf(f *testing.F) {
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if flowOf(b).Protocol == "" {
			t.Error("no protocol")
		}
	})
}
