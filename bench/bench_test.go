package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/workload/answers"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		args string
		mem  []int
		n    int
		last string // mode
		want string // in the error
	}{
		"defaults": {args: "pause", mem: []int{64, 256, 1024}, n: 10, last: modeStockFlate},
		"all flags": {
			args: "restore --mem 16,32 --n 3 --modes cold-start,diapause-hot", mem: []int{16, 32}, n: 3,
			last: modeHot,
		},
		"no benchmark":      {args: "", want: "pause, precopy, loading, restore, programs or wake"},
		"another benchmark": {args: "stop", want: "pause, precopy, loading, restore, programs or wake"},
		"mode of another":   {args: "pause --modes diapause-hot", want: "--modes"},
		"no size":           {args: "pause --mem 0", want: "--mem"},
		"no measurement":    {args: "pause --n 0", want: "--n"},
		"an argument":       {args: "pause now", want: "flags only"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, p, err := parse(strings.Fields(test.args))
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("got %v, want an error with %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.mem, test.mem) || p.n != test.n || p.modes[len(p.modes)-1] != test.last {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestNewRow(t *testing.T) {
	ms := func(values ...int) (d []time.Duration) {
		for _, v := range values {
			d = append(d, time.Duration(v)*time.Millisecond)
		}
		return d
	}
	tests := map[string]struct {
		samples       []time.Duration
		p50, p90, max float64
	}{
		"one":           {ms(7), 7, 7, 7},
		"ten, unsorted": {ms(10, 9, 8, 7, 6, 5, 4, 3, 2, 1), 5, 9, 10},
		"eleven":        {ms(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 6, 10, 11},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := row{"m", 1, 200, test.p50, test.p90, test.max, len(test.samples)}
			if got := newRow("m", 1, 200, test.samples); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	rows := []row{
		{modeDiapause, 64, 0, 90, 91, 92, 10},
		{modeFloor, 64, 0, 60, 61, 62, 10},
		{modeDiapause, 256, 0, 100, 101, 102, 10},
	}
	if err := benchmarks["pause"].print(&b, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"p50 / floor", "1.50", "1.00", "  -  "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestLongest(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, int64(ms)*int64(time.Millisecond)) }
	gapAt := func(ms int, length float64) answers.Gap {
		return answers.Gap{StartUnixNS: at(ms).UnixNano(), MS: length}
	}
	tests := map[string]struct {
		gaps []answers.Gap
		want time.Duration
	}{
		"none":                      {nil, 0},
		"before and after":          {[]answers.Gap{gapAt(50, 40), gapAt(310, 500)}, 0},
		"inside":                    {[]answers.Gap{gapAt(150, 60)}, 60 * time.Millisecond},
		"over either end":           {[]answers.Gap{gapAt(90, 30), gapAt(290, 80)}, 80 * time.Millisecond},
		"a shorter one beside it":   {[]answers.Gap{gapAt(110, 6), gapAt(150, 60), gapAt(250, 7)}, 60 * time.Millisecond},
		"a longer one that is over": {[]answers.Gap{gapAt(0, 99), gapAt(150, 20)}, 20 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := longest(test.gaps, at(100), at(300))
			if got != test.want || (err == nil) != (test.want > 0) || err != nil && !errors.Is(err, errNoGap) {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}
