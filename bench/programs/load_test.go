package programs

import (
	"testing"
	"time"
)

// at returns a time so many milliseconds after some instant.
func at(ms int) time.Time { return time.Unix(1000, int64(ms)*int64(time.Millisecond)) }

func times(ms ...int) (list []time.Time) {
	for _, m := range ms {
		list = append(list, at(m))
	}
	return list
}

func TestLongest(t *testing.T) {
	tests := map[string]struct {
		answers []time.Time
		want    int // milliseconds
	}{
		"none":               {nil, 0},
		"one":                {times(150), 0},
		"before and after":   {times(0, 90, 95), 0},
		"inside":             {times(99, 101, 161, 163), 60},
		"over the beginning": {times(40, 110, 112), 70},
		"over the end":       {times(198, 199, 290), 91},
		"over both":          {times(10, 400), 390},
		"a longer one that is over when it begins": {times(0, 90, 95, 105, 125, 127), 20},
		"a longer one after it":                    {times(150, 160, 205, 405), 45},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := longest(test.answers, at(100), at(200)); got != time.Duration(test.want)*time.Millisecond {
				t.Errorf("got %v, want %d ms", got, test.want)
			}
		})
	}
}

func TestUsual(t *testing.T) {
	tests := map[string]struct {
		answers []time.Time
		want    int // milliseconds
	}{
		"none":                   {nil, 0},
		"median":                 {times(1001, 1003, 1006, 1106), 3},
		"not those long before":  {times(0, 50, 100, 1500, 1501, 1502), 1},
		"not those of the pause": {times(1990, 1992, 1994, 2080), 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := usual(test.answers, at(2000)); got != time.Duration(test.want)*time.Millisecond {
				t.Errorf("got %v, want %d ms", got, test.want)
			}
		})
	}
}

// TestBounds: what was acknowledged before the pause must be in the snapshot, and what was sent after it must not.
// old answers changes neither.
func TestBounds(t *testing.T) {
	l := &Load{}
	for i := range l.streams {
		l.streams[i].answers = times(10, 20, 30, 100, 110)
	}
	check := func(when string) {
		if least, most := l.Bounds(at(35), at(105)); least[0] != 3 || most[0] != 5 {
			t.Errorf("%s: got %d to %d, want 3 to 5", when, least[0], most[0])
		}
	}
	check("before")
	if got, _ := l.Pause(at(35), at(95)); got != 60*time.Millisecond {
		t.Errorf("pause: got %v, want 60 ms", got)
	}
	check("after")
}

// TestPauseBefore: the time before a checkpoint is looked at for as long as the checkpoint takes, and without the gap
// that the checkpoint is in.
func TestPauseBefore(t *testing.T) {
	l := &Load{}
	l.streams[0].answers = times(0, 80, 85, 90, 110, 115, 120, 190, 195)
	l.streams[1].answers = times(0, 80, 85, 90, 95, 100, 105, 110, 115, 120, 125, 130, 135, 140, 145, 150)
	took, before := l.Pause(at(122), at(160))
	if took != 65*time.Millisecond {
		t.Errorf("pause: got %v, want 65 ms", took)
	}
	if before != 15*time.Millisecond {
		t.Errorf("before: got %v, want 15 ms", before)
	}
}
