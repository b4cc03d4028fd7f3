package traffic

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"testing"
)

// TestNewFilter: a list that cannot be used is an error, and an empty one ignores nothing.
func TestNewFilter(t *testing.T) {
	for _, all := range [][]Ignored{
		{{Port: 53}, {}},
		{{From: netip.MustParsePrefix("::ffff:10.0.0.0/104")}},
		slices.Repeat([]Ignored{{Port: 53}}, MaxIgnored+1),
	} {
		if f, err := NewFilter(all); !errors.Is(err, ErrIgnored) {
			t.Errorf("%v: %+v, %v", all, f, err)
		}
	}
	f, err := NewFilter(nil)
	if err != nil || f.Match(frame(t, one+"0800 4500 0034 0000 4000 4006 0000 0af40101 0af40105 9c40 1f90 00000000")) {
		t.Errorf("%+v, %v", f, err)
	}
}

// FuzzMatch compares a filter with what flowOf says.
func FuzzMatch(f *testing.F) {
	all := []Ignored{
		{From: netip.MustParsePrefix("10.244.1.0/25")},
		{From: netip.MustParsePrefix("10.0.0.0/8"), Port: 8080},
		{From: netip.MustParsePrefix("fd00:1:2:8000::/49")},
		{From: netip.MustParsePrefix("fd00::1/128"), Port: 7},
		{From: netip.MustParsePrefix("0.0.0.0/0"), Port: 54},
		{Port: 53},
	}
	filter, err := NewFilter(all)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		one4 + "06 0000 0af40101 0af40105 9c40 1f90", // from the first block
		one4 + "06 0000 0af40181 0af40105 9c40 1f90", // beyond it, for port 8080
		one4 + "06 0000 0af40181 0af40105 9c40 1f91",
		one4 + "01 0000 0af40181 0af40105 0800 1f90", // ICMP has no port
		one4 + "84 0000 c0000201 0af40105 9c40 0036", // SCTP
		one + "0800 4600 0034 0000 4000 4011 0000 c0000201 0af40105 94040000 9c40 0035",
		one + "0800 4500 0034 0000 2001 4011 0000 c0000201 0af40105 9c40 0035", // a later fragment
		one + "86dd 60000000 0014 06 40 fd00000100028001 0000000000000001 fd000000000000000000000000000005 9c40 1f90",
		one + "86dd 60000000 0014 06 40 fd00000100030001 0000000000000001 fd000000000000000000000000000005 9c40 0035",
		one + "86dd 60000000 0014 11 40 fd00000000000000 0000000000000001 fd000000000000000000000000000005 9c40 0007",
		one + "86dd 60000000 0014 11 40 fd00000000000000 0000000000000002 fd000000000000000000000000000005 9c40 0007",
		one + "0806 0001 0800 0604 0001 0a580af40101 0af40101 000000000000 0af40105",
	} {
		b, err := hex.DecodeString(strip(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(b, make([]byte, 40)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		is, got := flowOf(b), filter.Match(b)
		is.Broadcast = false // the kernel says that of a packet
		want := slices.ContainsFunc(all, func(x Ignored) bool { return x.Covers(is) })
		if len(b) >= etherHeader+ipv6Header && got != want {
			t.Errorf("%x, %+v: %v, want %v", b, is, got, want)
		}
	})
}
