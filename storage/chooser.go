package storage

import (
	"sync"
	"time"
)

// chooser picks the codec of each chunk of a writer. Processors and backend work at the same time, so the snapshot is
// done soonest if neither waits for the other. As long as the backend has enough to read, there is time to compress
// well. When the backend is about to run out, the chooser picks the codec that costs the processors least. So the mix
// of codecs keeps both busy, whatever the data and the bandwidth. Safe for concurrent use.
type chooser struct {
	fixed Codec // CodecAuto: choose
	small bool  // S2 at least
	speed *writeSpeed

	mu   sync.Mutex
	n    int
	zstd cost
	s2   cost
}

// cost is the expected time and result of a codec.
type cost struct {
	perByte float64 // seconds of one processor for a raw byte
	ratio   float64 // stored bytes for a raw byte
}

// Expectations before anything has been measured: a heap on a processor of moderate speed. packPerByte is the cost to
// lay a stored byte into a pack and to digest it there. It is not measured, because it hardly depends on the data.
const (
	zstdPerByte, zstdRatio = 3.5e-9, 0.17
	s2PerByte, s2Ratio     = 1.0e-9, 0.28
	packPerByte            = 0.2e-9
	minLearnt              = 32 << 10 // raw bytes; a smaller chunk says nothing about a codec
)

// sampleEvery is how often each codec is tried, in chunks, even if another one is the better choice.
const sampleEvery = 256

// margin is how many seconds of work the backend must have left before a chunk is compressed more strongly.
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

// cheapest chooses between S2 and no compression, by the time of one processor. It counts the time of a write as
// processor time, which is right where it matters: on a fast local disk.
func (c *chooser) cheapest(rate float64) Codec {
	if !c.small && c.s2.perByte > 1.5*(1-c.s2.ratio)*(packPerByte+1/rate) {
		return CodecNone
	}
	return CodecS2
}

// learn takes in the time and the result of a codec. A measurement counts at most as four times the expected time, in
// case the goroutine was preempted.
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
