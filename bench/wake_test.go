package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/workload/answers"
)

func TestParseWake(t *testing.T) {
	tests := map[string]struct {
		args  string
		modes []string // of the scenario first-answer
		touch []int
		want  string // in the error
	}{
		"defaults": {
			args: "",
			modes: []string{
				modeHot, modeCold, modeWireFirst, modeWireAgain, modeWireBytes, modeStockNone, modeEmpty,
			},
			touch: []int{20},
		},
		"some modes": {
			args: "--modes empty,diapause-hot --touch 4,20", modes: []string{modeHot, modeEmpty}, touch: []int{4, 20},
		},
		"another scenario":   {args: "--scenarios ready,branches", modes: nil, touch: []int{20}},
		"no such mode":       {args: "--modes slow", want: "--modes"},
		"no such scenario":   {args: "--scenarios sleep", want: "--scenarios"},
		"more than there is": {args: "--mem 256,16 --touch 17", want: "--touch"},
		"no piece":           {args: "--pieces 0", want: "--pieces"},
		"no measurement":     {args: "--n 0", want: "--n"},
		"an argument":        {args: "now", want: "flags only"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := parseWake(strings.Fields(test.args))
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("got %v, want an error with %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.modesOf(scenarioAnswer), test.modes) || !slices.Equal(p.touch, test.touch) {
				t.Errorf("got modes %v, %+v", p.modesOf(scenarioAnswer), p)
			}
		})
	}
}

// TestPassRate: a pass that is only partly between the two instants counts as that part.
func TestPassRate(t *testing.T) {
	at := time.Unix(100, 0)
	pass := func(begin, took time.Duration) answers.Pass {
		return answers.Pass{StartUnixNS: at.Add(begin).UnixNano(), MS: milliseconds(took)}
	}
	tests := map[string]struct {
		passes []answers.Pass
		want   float64 // in the first second
	}{
		"none":               {nil, 0},
		"whole":              {[]answers.Pass{pass(0, time.Second/2), pass(time.Second/2, time.Second/2)}, 2},
		"over both ends":     {[]answers.Pass{pass(-time.Second, 4*time.Second)}, 0.25},
		"half before":        {[]answers.Pass{pass(-time.Second/2, time.Second)}, 0.5},
		"before and after":   {[]answers.Pass{pass(-2*time.Second, time.Second), pass(time.Second, time.Second)}, 0},
		"one without a time": {[]answers.Pass{pass(0, 0)}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := passRate(test.passes, at, at.Add(time.Second)); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestNewWakeRow(t *testing.T) {
	samples := []wakeSample{
		{took: 3 * time.Millisecond, bytes: 30, share: 0.5, after: 0.7, agent: 1},
		{took: time.Millisecond, bytes: 10, share: 0.9, after: 1, agent: 7},
		{took: 2 * time.Millisecond, bytes: 20, share: 0.8, after: 0.9, agent: 2},
	}
	got := newWakeRow(scenarioNeighbour, modeHot, 64, samples)
	want := wakeRow{
		Scenario: scenarioNeighbour, Mode: modeHot, MemMiB: 64, P50: 2, P90: 3, Max: 3, Bytes: 20,
		Share: 0.8, After: 0.9, Agent: 7, N: 3,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
