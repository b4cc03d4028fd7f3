package checkpoint

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/agent/pace"
)

// TestGivesWay: pre-copy waits for its turn for as long as it is told to, and not at all for a pod that does not run
// on.
func TestGivesWay(t *testing.T) {
	tests := map[string]struct {
		o     Options
		limit time.Duration
		want  bool
	}{
		"a pod that runs on": {limit: time.Minute, want: true},
		"no time for it":     {},
		"a stop":             {o: Options{Stop: true}, limit: time.Minute},
		"a sleep":            {o: Options{Handover: nobody{}}, limit: time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &checkpoint{cs: &Checkpoints{Config: Config{PrecopyTime: tt.limit, Pace: pace.New()}}, o: tt.o}
			if got := c.pace() != nil; got != tt.want {
				t.Errorf("it gives way: %v, want %v", got, tt.want)
			}
		})
	}
}

// nobody takes no sandbox over.
type nobody struct{ Handover }

func TestGivesWayForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		c := &checkpoint{cs: &Checkpoints{Config: Config{PrecopyTime: limit, Pace: pace.New()}}}
		wait, began := c.pace(), time.Now()
		for time.Since(began) < limit {
			before := time.Now()
			if err := wait(t.Context(), 50*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if time.Since(before) == 0 {
				time.Sleep(time.Millisecond) // all processors are free
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := wait(ctx, time.Hour); err != nil {
			t.Errorf("it still waits after %v: %v", time.Since(began), err)
		}
	})
}
