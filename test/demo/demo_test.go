package main

import (
	"strings"
	"testing"
	"time"

	"diapause.dev/test/workload/answers"
)

func TestParseRow(t *testing.T) {
	if b := parseRow("0123456789abc   default/branch-0    10.0.0.7    310.2 ms"); b == nil || b.name != "branch-0" ||
		b.endpoint != "10.0.0.7" {
		t.Errorf("got %+v", b)
	}
	for _, line := range []string{"", "POD ID          POD           IP      TOOK", "a b"} {
		if b := parseRow(line); b != nil {
			t.Errorf("%q: got %+v", line, b)
		}
	}
}

func TestLongest(t *testing.T) {
	begin, end := time.Unix(10, 0), time.Unix(20, 0)
	gap := func(s int64, ms float64) answers.Gap {
		return answers.Gap{StartUnixNS: time.Unix(s, 0).UnixNano(), MS: ms}
	}
	g, err := longest([]answers.Gap{gap(9, 500), gap(11, 20), gap(12, 70), gap(20, 900)}, begin, end)
	if err != nil || g.MS != 70 {
		t.Errorf("got %+v, %v", g, err)
	}
	if _, err := longest([]answers.Gap{gap(9, 500)}, begin, end); err == nil {
		t.Error("no gap in time is no error")
	}
}

func state(boot string, counter int64) answers.State {
	return answers.State{Boot: boot, Counter: counter}
}

func TestAround(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000 + ms)) }
	r := loadReport{answers: []answer{
		{at(0), at(1), state("b", 1)},
		{at(60), at(70), state("b", 2)},
		{at(90), at(300), state("b", 3)}, // waited through the pause
		{at(400), at(401), state("b", 9)},
		{at(410), at(411), state("b", 10)},
	}}
	g := answers.Gap{StartUnixNS: at(100).UnixNano(), MS: 150}
	before, after, err := r.around(g)
	if err != nil || before.Counter != 2 || after.Counter != 9 {
		t.Errorf("got %+v, %+v, %v", before, after, err)
	}
	if _, _, err := r.around(answers.Gap{StartUnixNS: at(500).UnixNano(), MS: 100}); err == nil {
		t.Error("no answer after the pause is no error")
	}
}

func TestContinues(t *testing.T) {
	before, after := state("b", 100), state("b", 120)
	tests := []struct {
		name string
		s    answers.State
		ok   bool
	}{
		{"at the checkpoint", state("b", 110), true},
		{"having run on", state("b", 150), true},
		{"started anew", state("c", 110), false},
		{"earlier than the checkpoint", state("b", 99), false},
		{"later than it can be", state("b", 200), false},
		{"nothing", answers.State{}, false},
	}
	for _, tt := range tests {
		if err := continues(tt.s, before, after, 500*time.Millisecond); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestPlainPage(t *testing.T) {
	var out strings.Builder
	p := &page{w: &out, begin: time.Now()}
	p.say("step %d", 1)
	p.title("title")
	p.row("name", "%d ms", 3)
	p.last("demo: ok x=%d", 1)
	if strings.Contains(out.String(), "\x1b") || !strings.HasSuffix(out.String(), "\ndemo: ok x=1\n") {
		t.Errorf("got %q", out.String())
	}
}
