package storage

import (
	"sync"
	"time"
)

// readSpeed measures how a backend answers reads: how long the first byte takes, and how many bytes a
// second come once they do. It is safe for concurrent use. The zero value has measured nothing.
type readSpeed struct {
	mu      sync.Mutex
	latency float64 // seconds; the shortest read of late
	rate    float64 // bytes per second of all reads together; 0: not known
	active  int     // reads under way
	began   time.Time
	bytes   float64 // that came since began
}

// Until a rate has been measured, a backend is taken for a network, or for a disk if it answers within
// diskLatency. Only a burst of at least burstLeast bytes says anything about the rate; one of burstMost is
// measured before it ends.
const (
	usualRate   = 100e6
	diskRate    = 2e9
	diskLatency = 1e-3
	burstLeast  = 4 << 20
	burstMost   = 64 << 20
	slowerReads = 1.02 // by so much every read raises what is taken for the shortest
)

// read does a read of n bytes and takes note of what it took.
func (s *readSpeed) read(n int, do func() error) error {
	began := s.begin()
	err := do()
	s.end(began, n, err)
	return err
}

func (s *readSpeed) begin() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.active++; s.active == 1 {
		s.began, s.bytes = now, 0
	}
	return now
}

func (s *readSpeed) end(began time.Time, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if err != nil {
		return
	}
	now := time.Now()
	took := now.Sub(began).Seconds()
	if s.latency == 0 {
		s.latency = took
	}
	s.latency = min(took, s.latency*slowerReads)
	s.bytes += float64(n)
	if s.bytes < burstLeast || s.active > 0 && s.bytes < burstMost {
		return
	}
	if flow := now.Sub(s.began).Seconds() - s.latency; flow > 0 {
		s.rate = s.bytes / flow
	}
	s.began, s.bytes = now, 0
}

// state returns seconds to the first byte and bytes per second.
func (s *readSpeed) state() (latency, rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.rate > 0:
		return s.latency, s.rate
	case s.latency > 0 && s.latency < diskLatency:
		return s.latency, diskRate
	}
	return s.latency, usualRate
}

// Bounds of a run, of a gap in it, and of the reads of a batch that are under way.
const (
	leastRun, mostRun     = 1 << 20, 8 << 20
	leastGap, mostGap     = 16 << 10, 1 << 20
	leastReads, mostReads = 4, 64
)

// readCost is how many seconds of a processor a read takes, however short.
const readCost = 30e-6

// bounds returns how runs are best cut: the largest gap that a run may have, and its largest size, in
// bytes. Latency times rate is what the backend can send while one answer is waited for. That many bytes
// must be asked for at any time to keep it busy, and are a good read. To ask once more costs a share of
// them, since other answers come meanwhile, or what a read costs at least: a smaller gap is cheaper to
// read.
func (s *readSpeed) bounds() (gap, run int64) {
	latency, rate := s.state()
	n := int64(latency * rate)
	return min(max(n/mostReads, int64(readCost*rate), leastGap), mostGap), min(max(n, leastRun), mostRun)
}

// inFlight returns how many runs are to be read at a time: twice what keeps the backend busy.
func (s *readSpeed) inFlight(runs []run) int {
	var size int64
	for i := range runs {
		size += runs[i].to - runs[i].from
	}
	latency, rate := s.state()
	need := 2 * latency * rate * float64(len(runs)) / float64(size)
	return min(leastReads+int(need), mostReads, len(runs))
}
