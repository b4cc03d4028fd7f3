package storage

import (
	"sync"
	"time"
)

// chooser picks the codec of each chunk of a writer. The processors and the backend work at the
// same time, so the snapshot is done soonest when neither waits for the other: as long as the
// backend has enough to read, there is time to compress well; when it is about to run out, the codec
// is the one that costs the processors least. So the codecs mix in the proportion that keeps both
// busy, whatever the data and the bandwidth. Safe for concurrent use.
type chooser struct {
	fixed Codec // CodecAuto: choose
	small bool  // S2 at least
	speed *writeSpeed

	mu   sync.Mutex
	n    int
	zstd cost
	s2   cost
}

// cost is what a codec is expected to take and to give.
type cost struct {
	perByte float64 // seconds of one processor for a raw byte
	ratio   float64 // stored bytes for a raw byte
}

// What is expected before anything has been measured: a heap on a processor of no great speed. The
// cost of a stored byte for laying it into a pack and its digest there is not measured: it hardly
// depends on the data.
const (
	zstdPerByte, zstdRatio = 3.5e-9, 0.17
	s2PerByte, s2Ratio     = 1.0e-9, 0.28
	packPerByte            = 0.2e-9
	minLearnt              = 32 << 10 // raw bytes of a chunk that tells anything
)

// sampleEvery is the number of chunks after which a codec that has not been used is tried.
const sampleEvery = 256

// margin is how many seconds of work the backend must have for the others to take their time.
const margin = 0.01

func newChooser(fixed Codec, small bool, w *writeSpeed) *chooser {
	return &chooser{
		fixed: fixed, small: small, speed: w,
		zstd: cost{zstdPerByte, zstdRatio}, s2: cost{s2PerByte, s2Ratio},
	}
}

// choose returns the codec for the next chunk.
func (c *chooser) choose() Codec {
	if c.fixed != CodecAuto {
		return c.fixed
	}
	rate, left := c.speed.state()
	c.mu.Lock()
	defer c.mu.Unlock()
	strong := CodecZstd
	if c.zstd.ratio > 0.97*c.s2.ratio {
		strong = CodecS2 // no better, and slower to read
	}
	if c.n++; c.n%sampleEvery == 0 {
		return CodecZstd
	} else if c.n%sampleEvery == sampleEvery/2 || rate == 0 {
		return CodecS2
	}
	if left/rate >= margin {
		return strong
	}
	return c.cheapest(rate)
}

// cheapest compares storing a chunk as it is with S2, by the time of one processor. Writing is
// taken to cost what it takes, which is right where it matters: on a fast local disk.
func (c *chooser) cheapest(rate float64) Codec {
	if !c.small && c.s2.perByte > 1.5*(1-c.s2.ratio)*(packPerByte+1/rate) {
		return CodecNone
	}
	return CodecS2
}

// learn takes in what a codec took and gave. One that was preempted counts no more than fourfold.
func (c *chooser) learn(codec Codec, raw, stored int, took time.Duration) {
	if c.fixed != CodecAuto || codec == CodecNone || raw < minLearnt {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if codec == CodecZstd {
		c.zstd.learn(raw, stored, took)
	} else {
		c.s2.learn(raw, stored, took)
	}
}

func (k *cost) learn(raw, stored int, took time.Duration) {
	perByte, ratio := took.Seconds()/float64(raw), float64(stored)/float64(raw)
	const weight = 1.0 / 16
	k.perByte += weight * (min(perByte, 4*k.perByte) - k.perByte)
	k.ratio += weight * (ratio - k.ratio)
}
