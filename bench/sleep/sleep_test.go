package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/test/workload/answers"
)

func TestParse(t *testing.T) {
	for args, ok := range map[string]bool{
		"":                                  true,
		"--scenarios wake,false":            true,
		"--scenarios dense --pods 20 -n 3":  true,
		"--scenarios sleep":                 false,
		"--pods 1000":                       false,
		"-n 0":                              false,
		"more":                              false,
		"--scenarios idle --idle-time soon": false,
	} {
		if p, err := parse(strings.Fields(args)); (err == nil) != ok {
			t.Errorf("%q: %+v, %v", args, p, err)
		}
	}
}

// TestLedger wants every way to show in which a pod can have lost its state.
func TestLedger(t *testing.T) {
	var l ledger
	for _, tt := range []struct {
		what  string
		floor int64
		count answers.Count
		ok    bool
	}{
		{"the first", 0, answers.Count{Boot: "a", Count: 1}, true},
		{"the next but one", 1, answers.Count{Boot: "a", Count: 3}, true},
		{"one that was overtaken", 1, answers.Count{Boot: "a", Count: 2}, true},
		{"one that came before", 3, answers.Count{Boot: "a", Count: 3}, false},
		{"another life", 3, answers.Count{Boot: "b", Count: 4}, false},
		{"after a gap", 3, answers.Count{Boot: "a", Count: 6}, true},
		{"the pod went back", 6, answers.Count{Boot: "a", Count: 4}, false},
	} {
		if err := l.enter(tt.floor, tt.count); (err == nil) != tt.ok || err != nil && kindOf(err) != wrong {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
	if l.floor() != 6 || l.whole() == nil {
		t.Errorf("floor %d, whole: %v", l.floor(), l.whole())
	}
}

func TestKindOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, refused},
		{&net.OpError{Err: os.NewSyscallError("read", syscall.ECONNRESET)}, reset},
		{io.EOF, reset},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), reset},
		{os.ErrDeadlineExceeded, lost},
		{&net.OpError{Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, lost},
		{fmt.Errorf("%w: 500", errWrong), wrong},
	} {
		if got := kindOf(tt.err); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.err, got, tt.want)
		}
	}
}

func TestTimes(t *testing.T) {
	var all times
	for i := range 10 {
		all = append(all, time.Duration(10-i)*time.Millisecond)
	}
	var got []float64
	for _, f := range all.figures() {
		got = append(got, f.Value)
	}
	if want := []float64{5, 9, 10, 10}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWrite wants a run to replace its own scenarios in the file, and no other.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out", "sleep.json")
	var first, second figures
	first.add("wake/http/64MiB", count("n", 1))
	first.add("idle", count("pods", 1))
	second.add("idle", count("pods", 2))
	if err := errors.Join(first.write(path), second.write(path)); err != nil {
		t.Fatal(err)
	}
	got, err := read(path)
	want := figures{{Scenario: "idle", Metric: "pods", Value: 2}, {Scenario: "wake/http/64MiB", Metric: "n", Value: 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v: %v, want %+v", got, err, want)
	}
}

func TestCounter(t *testing.T) {
	text := "# HELP a_total\na_total{cause=\"packet\"} 12\na_total{cause=\"packets\"} 3\n"
	for name, want := range map[string]float64{`a_total{cause="packet"}`: 12, `a_total{cause="exec"}`: 0} {
		if got, err := counter(text, name); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
