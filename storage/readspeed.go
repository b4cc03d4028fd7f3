package storage

import (
	"sync"
	"time"
)

// readSpeed measures how fast a backend answers reads: how long the first byte takes, and how many bytes per second
// follow. It is safe for concurrent use. The zero value has measured nothing.
type readSpeed struct {
	mu      sync.Mutex
	latency float64 // seconds; the shortest of recent reads
	rate    float64 // bytes per second of all reads together; 0: not known
	active  int     // reads under way
	began   time.Time
	bytes   float64 // bytes that came since began
}

// Until a rate has been measured, a backend is assumed to be a disk if it answers within diskLatency, or else a
// network. A burst of less than burstLeast bytes says nothing about the rate. A burst of burstMost bytes is measured
// before it ends.
const (
	usualRate   = 100e6
	diskRate    = 2e9
	diskLatency = 1e-3
	burstLeast  = 4 << 20
	burstMost   = 64 << 20
	slowerReads = 1.02 // each read raises the shortest latency by this factor, so that it follows changes
)

// read runs a read of n bytes and measures it.
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

// state returns the seconds to the first byte, and the bytes per second after it.
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

// Bounds of a run, of a gap in a run, and of how many reads of a batch are under way.
const (
	leastRun, mostRun     = 1 << 20, 8 << 20
	leastGap, mostGap     = 16 << 10, 1 << 20
	leastReads, mostReads = 4, 64
)

// readCost is how many seconds of a processor even the shortest read takes.
const readCost = 30e-6

// bounds returns the largest gap that a run should have, and its largest size, in bytes. Latency times rate is what the
// backend can send while one answer is awaited. To keep the backend busy, that many bytes must be requested at any
// time; they also make a good read. One more request costs a share of them, since other answers come meanwhile, and at
// least readCost. If a gap costs less, it is cheaper to read the gap.
func (s *readSpeed) bounds() (gap, run int64) {
	latency, rate := s.state()
	n := int64(latency * rate)
	return min(max(n/mostReads, int64(readCost*rate), leastGap), mostGap), min(max(n, leastRun), mostRun)
}

// inFlight returns how many runs to read at a time: twice what keeps the backend busy.
func (s *readSpeed) inFlight(runs []run) int {
	var size int64
	for i := range runs {
		size += runs[i].to - runs[i].from
	}
	latency, rate := s.state()
	need := 2 * latency * rate * float64(len(runs)) / float64(size)
	return min(leastReads+int(need), mostReads, len(runs))
}
