package storage

import (
	"sync"
	"time"
)

// link measures how a backend answers reads: how long the first byte takes, and how many bytes a
// second come once they do. Safe for concurrent use; the zero value has measured nothing.
type link struct {
	mu      sync.Mutex
	latency float64 // seconds; the shortest read of late
	rate    float64 // bytes per second of all reads together; 0: not known
	active  int     // reads under way
	began   time.Time
	bytes   float64 // that came since began
}

// What the rate of a link is taken to be before it has been measured: that of a network, or, when it
// answers so soon, that of a disk; and which bursts of reads tell anything of it: those of so many bytes.
const (
	usualRate   = 100e6
	diskRate    = 2e9
	diskLatency = 1e-3
	burstLeast  = 4 << 20
	burstMost   = 64 << 20
	slowerReads = 1.02 // by so much every read raises what is taken for the shortest
)

// read does a read of n bytes and takes note of what it took.
func (l *link) read(n int, do func() error) error {
	began := l.begin()
	err := do()
	l.end(began, n, err)
	return err
}

func (l *link) begin() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.active++; l.active == 1 {
		l.began, l.bytes = now, 0
	}
	return now
}

func (l *link) end(began time.Time, n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active--
	if err != nil {
		return
	}
	now := time.Now()
	took := now.Sub(began).Seconds()
	if l.latency == 0 {
		l.latency = took
	}
	l.latency = min(took, l.latency*slowerReads)
	l.bytes += float64(n)
	if l.bytes < burstLeast || l.active > 0 && l.bytes < burstMost {
		return
	}
	if flow := now.Sub(l.began).Seconds() - l.latency; flow > 0 {
		l.rate = l.bytes / flow
	}
	l.began, l.bytes = now, 0
}

// state returns seconds to the first byte and bytes per second.
func (l *link) state() (latency, rate float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.rate > 0:
		return l.latency, l.rate
	case l.latency > 0 && l.latency < diskLatency:
		return l.latency, diskRate
	}
	return l.latency, usualRate
}

// Bounds of a run, of a gap in it, and of the reads of a batch that are under way.
const (
	leastRun, mostRun     = 1 << 20, 8 << 20
	leastGap, mostGap     = 16 << 10, 1 << 20
	leastReads, mostReads = 4, 64
)

// readCost is how many seconds of a processor a read takes, however short.
const readCost = 30e-6

// bounds says how runs are best cut. While one answer is waited for the wire carries a number of
// bytes: that many must be asked for at any time to keep it busy, and are a good read. To ask once
// more costs a share of them, since other answers come meanwhile, or what a read costs at least: a
// smaller gap is cheaper to read.
func (l *link) bounds() (gap, run int64) {
	latency, rate := l.state()
	n := int64(latency * rate)
	return min(max(n/mostReads, int64(readCost*rate), leastGap), mostGap), min(max(n, leastRun), mostRun)
}

// inFlight returns how many runs are to be read at a time: twice what keeps the wire busy.
func (l *link) inFlight(runs []run) int {
	var size int64
	for i := range runs {
		size += runs[i].to - runs[i].from
	}
	latency, rate := l.state()
	need := 2 * latency * rate * float64(len(runs)) / float64(size)
	return min(leastReads+int(need), mostReads, len(runs))
}
