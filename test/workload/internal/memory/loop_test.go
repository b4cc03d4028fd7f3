package memory

import (
	"context"
	"testing"
	"time"
)

func TestTouch(t *testing.T) {
	m := filled(t, 16)
	tests := []struct {
		first, count int
		ok           bool
	}{
		{0, 16, true},
		{15, 1, true},
		{16, 0, true},
		{16, 1, false},
		{0, 17, false},
		{-1, 1, false},
		{1, -1, false},
		{1 << 62, 1 << 62, false},
	}
	for _, tt := range tests {
		if _, err := m.Touch(tt.first, tt.count); (err == nil) != tt.ok {
			t.Errorf("Touch(%d, %d): %v", tt.first, tt.count, err)
		}
	}
	one, _ := m.Touch(3, 1)
	if one != 3 { // a page begins with its index
		t.Errorf("touched %d, want page 3", one)
	}
}

// TestLoop: a loop remembers its last passes, in their order, and goes on after a reset.
func TestLoop(t *testing.T) {
	var l Loop
	begin := time.Unix(1, 0)
	for i := range maxPasses + 3 {
		l.note(begin.Add(time.Duration(i)), time.Millisecond, 0)
	}
	got := l.Report(true).Passes
	if len(got) != maxPasses {
		t.Fatalf("%d passes, want %d", len(got), maxPasses)
	}
	for i, p := range got {
		if want := begin.Add(time.Duration(i + 3)); !p.Start().Equal(want) || p.Took() != time.Millisecond {
			t.Fatalf("pass %d: %+v, want one at %v", i, p, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := filled(t, 4)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx, m)
	}()
	for len(l.Report(false).Passes) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
}
