package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"diapause.dev/bench/programs"
)

func TestParsePrograms(t *testing.T) {
	tests := map[string]struct {
		args  string
		first string // program
		n     int
		cpu   []int
		runsc string
		want  string // in the error
	}{
		"defaults": {args: "", first: "redis", n: 20, cpu: []int{0}, runsc: runscStock},
		"all flags": {
			args: "--programs nginx,go --n 3 --cpu-limit-m 0,200 --modes diapause --runsc fast", first: "nginx", n: 3,
			cpu: []int{0, 200}, runsc: "fast",
		},
		"another program": {args: "--programs emacs", want: "--programs"},
		"another mode":    {args: "--modes diapause,stock-none", want: "--modes"},
		"not ours":        {args: "--modes floor", want: "has to be the first"},
		"no measurement":  {args: "--n 0", want: "--n"},
		"no other mode":   {args: "--n 3 --others-every 4", want: "--others-every"},
		"an argument":     {args: "now", want: "flags only"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := parsePrograms(strings.Fields(test.args))
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("got %v, want an error with %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.programs[0].Name != test.first || p.n != test.n || !slices.Equal(p.cpu, test.cpu) || p.runsc != test.runsc {
				t.Errorf("got %+v", p)
			}
		})
	}
}

// TestCompare: a write that is missing counts as lost; one that should not be there is an error.
func TestCompare(t *testing.T) {
	tests := map[string]struct {
		found programs.Found
		lost  int64
		wrong bool
	}{
		"the least":      {programs.Found{Writes: [programs.Streams]int64{10, 20}}, 0, false},
		"the most":       {programs.Found{Writes: [programs.Streams]int64{12, 21}}, 0, false},
		"two missing":    {programs.Found{Writes: [programs.Streams]int64{8, 20}}, 2, false},
		"both missing":   {programs.Found{Writes: [programs.Streams]int64{9, 19}}, 2, false},
		"of later":       {programs.Found{Writes: [programs.Streams]int64{13, 20}}, 0, true},
		"later and lost": {programs.Found{Writes: [programs.Streams]int64{13, 15}}, 5, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tr := &trial{program: &programs.Program{Name: "p"}}
			err := tr.compare(test.found, [programs.Streams]int64{10, 20}, [programs.Streams]int64{12, 21})
			if tr.lost != test.lost || (err != nil) != test.wrong {
				t.Errorf("got %d lost, %v", tr.lost, err)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	list := []wakeup{{sandbox: 3 * time.Millisecond}, {sandbox: time.Millisecond}, {sandbox: 2 * time.Millisecond}}
	if got := median(list, wakeup.whole); got != 2 {
		t.Errorf("got %v, want 2", got)
	}
	if got := median(nil, wakeup.whole); got != 0 {
		t.Errorf("of nothing: got %v, want 0", got)
	}
}
