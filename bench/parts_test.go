package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// sentrySaid is from a log of the sentry; the first save is another one's.
const sentrySaid = `I1123 18:00:00.000000       1 state.go:118] Sandbox save started, pausing all tasks.
I1123 18:00:09.000000       1 state.go:123] Tasks resumed after save.
I1123 18:00:10.000000       1 state.go:118] Sandbox save started, pausing all tasks.
I1123 18:00:10.004000       1 kernel.go:782] CPUID save took [1ms].
I1123 18:00:10.054000       1 kernel.go:804] Kernel save took [44ms].
I1123 18:00:10.055000       1 kernel.go:908] Memory files save took [50ms].
I1123 18:00:10.056500       1 kernel.go:832] Overall save took [52.5ms].
I1123 18:00:10.057000       1 state.go:123] Tasks resumed after save.
`

func TestParseParts(t *testing.T) {
	now := time.Date(2026, 11, 23, 18, 1, 0, 0, time.Local)
	p, err := parseParts(sentrySaid, now)
	if err != nil {
		t.Fatal(err)
	}
	ms := func(d time.Duration) int { return int(d / (100 * time.Microsecond)) } // tenths
	if ms(p.stopping) != 100 || ms(p.kernel) != 440 || ms(p.pages) != 25 || ms(p.resuming) != 5 {
		t.Errorf("got %v", p)
	}
	if sum := p.stopping + p.kernel + p.pages + p.resuming; sum != p.end.Sub(p.begin) {
		t.Errorf("the parts add up to %v, want %v", sum, p.end.Sub(p.begin))
	}
	if want := time.Date(2026, 11, 23, 18, 0, 10, 0, time.Local); !p.begin.Equal(want) {
		t.Errorf("it began at %v, want %v", p.begin, want)
	}
}

func TestParsePartsOfNoSave(t *testing.T) {
	unfinished := sentrySaid[:strings.LastIndex(sentrySaid, "I1123")]
	for name, log := range map[string]string{"empty": "", "not over": unfinished} {
		if p, err := parseParts(log, time.Now()); !errors.Is(err, errNotLogged) {
			t.Errorf("%s: got %v, %v, want %v", name, p, err, errNotLogged)
		}
	}
}

func TestPrintPrograms(t *testing.T) {
	var b strings.Builder
	rows := []programRow{{Program: "redis", Runsc: runscStock, CPU: 200, N: 20, PauseP50: 61.2, RawBytes: 1 << 20}}
	if err := printPrograms(&b, rows); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || strings.Count(lines[0], "|") != strings.Count(lines[2], "|") ||
		strings.Count(lines[1], "|") != strings.Count(lines[2], "|") {
		t.Errorf("got\n%s", &b)
	}
	for _, want := range []string{"redis", "200", "61.2", "1.0"} {
		if !strings.Contains(lines[2], want) {
			t.Errorf("no %q in %s", want, lines[2])
		}
	}
}
