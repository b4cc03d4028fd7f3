package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/workload/answers"
)

func TestParsePrecopy(t *testing.T) {
	tests := map[string]string{
		"":                              "",
		"--mem 1024,4096 --threads 1,8": "",
		"--work memory --modes at-once --flags --arena=1": "",
		"--work play":   "--work",
		"--modes slow":  "--modes",
		"--threads 0":   "--threads",
		"--n 0":         "--n",
		"--mem 1 again": "flags only",
	}
	for args, want := range tests {
		_, err := parsePrecopy(strings.Fields(args))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", args, err, want)
		}
	}
}

// TestPrecopySample: the rate while memory is stored is compared with the mean of those before and after.
func TestPrecopySample(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	var notes []answers.Done
	pieces := 0.0
	for s := 0.0; s <= 30; s += 0.02 {
		notes = append(notes, answers.Done{UnixNS: at(s).UnixNano(), Pieces: int64(pieces)})
		switch {
		case s < 10:
			pieces += 20
		case s < 20:
			pieces += 27
		default:
			pieces += 40
		}
	}
	o := observed{begin: at(5), precopy: at(10.5), precopied: at(19.5)}
	got, err := newPrecopySample(notes, o, at(25))
	if err != nil {
		t.Fatal(err)
	}
	if got.share < 0.899 || got.share > 0.901 || got.after < 1.99 || got.after > 2.01 || got.took != 9*time.Second {
		t.Errorf("got %+v", got)
	}
	for name, o := range map[string]observed{
		"nothing noted before":     {begin: at(-1), precopy: at(10), precopied: at(19)},
		"too short":                {begin: at(5), precopy: at(10), precopied: at(10.01)},
		"the notes end before":     {begin: at(5), precopy: at(31), precopied: at(32)},
		"it ends before it begins": {begin: at(5), precopy: at(12), precopied: at(11)},
	} {
		if _, err := newPrecopySample(notes, o, at(25)); !errors.Is(err, errNoWork) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
