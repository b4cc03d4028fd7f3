package storage

import (
	"errors"
	"testing"
	"time"
)

// TestReadSpeedBounds: how much is read together depends on the backend's speed.
func TestReadSpeedBounds(t *testing.T) {
	for _, test := range []struct {
		name          string
		latency, rate float64
		gap, run      int64
		reads         int // of 200 runs of 64 KiB
	}{
		{"memory", 20e-6, 4e9, 120_000, leastRun, 6},
		{"disk, not measured", 50e-6, 0, 60_000, leastRun, 7},
		{"not measured", 0, 0, leastGap, leastRun, 4},
		{"network", 20e-3, 100e6, 2000000 / 64, 2000000, 64},
		{"far away", 200e-3, 1e9, mostGap, mostRun, 64},
	} {
		s := &readSpeed{latency: test.latency, rate: test.rate}
		if gap, run := s.bounds(); gap != test.gap || run != test.run {
			t.Errorf("%s: gaps of %d and runs of %d, want %d and %d", test.name, gap, run, test.gap, test.run)
		}
		runs := make([]run, 200)
		for i := range runs {
			runs[i] = run{from: int64(i) << 20, to: int64(i)<<20 + 64<<10}
		}
		if got := s.inFlight(runs); got != test.reads {
			t.Errorf("%s: %d reads at a time, want %d", test.name, got, test.reads)
		}
	}
}

// TestReadSpeedMeasures: a readSpeed takes its latency from the shortest read and its rate from large bursts. It
// ignores reads that failed.
func TestReadSpeedMeasures(t *testing.T) {
	s := &readSpeed{}
	ago := func(d time.Duration, n int, err error) {
		s.begin()
		s.began = time.Now().Add(-d)
		s.end(s.began, n, err)
	}
	ago(time.Second, 8<<20, errors.New("away"))
	if latency, rate := s.state(); latency != 0 || rate != usualRate {
		t.Errorf("by a failure: %v s, %v bytes/s", latency, rate)
	}
	ago(20*time.Millisecond, 100, nil)
	ago(time.Second, 98<<20, nil)
	latency, rate := s.state()
	if latency < 0.02 || latency > 0.5 {
		t.Errorf("latency of %v s", latency)
	}
	if rate < 10<<20 || rate > 110<<20 {
		t.Errorf("%v bytes/s", rate)
	}
}
