package storage

import (
	"testing"
	"time"
)

// TestChooser simulates a writer's loop, with chunks of known cost and a backend of a given bandwidth.
func TestChooser(t *testing.T) {
	for _, test := range []struct {
		name     string
		rate     float64 // bytes per second
		zstd, s2 int     // the least number of chunks in 100
	}{
		{"slow backend", 20e6, 90, 0},
		{"fast disk", 1e9, 0, 90},
	} {
		w := &writeSpeed{taken: test.rate, spent: 1}
		w.begin().add(1 << 20)
		c := newChooser(CodecAuto, false, w)
		count := map[Codec]int{}
		for range 100 {
			count[c.choose()]++
		}
		if count[CodecZstd] < test.zstd || count[CodecS2]+count[CodecNone] < test.s2 {
			t.Errorf("%s: %v", test.name, count)
		}
	}
}

func TestChooserLearns(t *testing.T) {
	c := newChooser(CodecAuto, false, &writeSpeed{taken: 20e6, spent: 1, left: 8 << 20})
	for range 50 { // noise: zstd gains nothing
		c.learn(CodecZstd, 100000, 100000, 100*time.Microsecond)
		c.learn(CodecS2, 100000, 100000, 10*time.Microsecond)
	}
	if got := c.choose(); got != CodecS2 {
		t.Errorf("noise on a slow backend: %s", got)
	}
	c = newChooser(CodecAuto, false, &writeSpeed{taken: 1e12, spent: 1})
	for range 50 {
		c.learn(CodecS2, 100000, 90000, 300*time.Microsecond)
	}
	if got := c.choose(); got != CodecNone {
		t.Errorf("on memory: %s", got)
	}
	c.small = true
	if got := c.choose(); got != CodecS2 {
		t.Errorf("on memory, for a spool: %s", got)
	}
	fixed := newChooser(CodecZstd, false, &writeSpeed{})
	if got := fixed.choose(); got != CodecZstd {
		t.Errorf("asked for zstd: %s", got)
	}
}
