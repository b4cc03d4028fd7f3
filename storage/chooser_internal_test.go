package storage

import (
	"testing"
	"time"
)

// TestChooser runs a writer's loop in the mind: chunks that cost what they cost, and a backend of a
// given bandwidth.
func TestChooser(t *testing.T) {
	for _, test := range []struct {
		name     string
		rate     float64 // bytes per second
		zstd, s2 int     // at least so many of 100
	}{
		{"slow wire", 20e6, 90, 0},
		{"fast disk", 1e9, 0, 90},
	} {
		c := newChooser(CodecAuto, &wire{taken: test.rate, busy: 1}, 2)
		_, done := c.wire.send(nil, 1<<20)
		count := map[Codec]int{}
		for range 100 {
			count[c.choose(2<<20, 2<<20)]++
		}
		done()
		if count[CodecZstd] < test.zstd || count[CodecS2]+count[CodecNone] < test.s2 {
			t.Errorf("%s: %v", test.name, count)
		}
	}
}

func TestChooserLearns(t *testing.T) {
	c := newChooser(CodecAuto, &wire{taken: 20e6, busy: 1}, 2)
	for range 50 { // noise: zstd gains nothing
		c.learn(CodecZstd, 100000, 100000, 100*time.Microsecond)
		c.learn(CodecS2, 100000, 100000, 10*time.Microsecond)
	}
	if got := c.choose(8<<20, 1<<20); got != CodecS2 {
		t.Errorf("noise on a slow wire: %s", got)
	}
	c = newChooser(CodecAuto, &wire{taken: 1e12, busy: 1}, 2)
	for range 50 {
		c.learn(CodecS2, 100000, 90000, 300*time.Microsecond)
	}
	if got := c.choose(0, 1<<20); got != CodecNone {
		t.Errorf("on memory: %s", got)
	}
	fixed := newChooser(CodecZstd, &wire{}, 2)
	if got := fixed.choose(0, 1); got != CodecZstd {
		t.Errorf("asked for zstd: %s", got)
	}
}
