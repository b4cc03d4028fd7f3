package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// mostMemory returns the most anonymous memory that the process had while do ran, in bytes. Nothing
// else is measured meanwhile: to look at memory takes time.
func mostMemory(do func() error) (int64, error) {
	settle()
	stop := watchMemory()
	err := do()
	return stop(), err
}

// watchMemory looks at the process's anonymous memory until it is stopped, and returns the most that
// was seen, in bytes.
func watchMemory() (stop func() int64) {
	quit, peak := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		most := anonymous()
		for {
			select {
			case <-tick.C:
				most = max(most, anonymous())
			case <-quit:
				peak <- max(most, anonymous())
				return
			}
		}
	}()
	return func() int64 {
		close(quit)
		return <-peak
	}
}

// anonymous returns the process's resident anonymous memory; 0 when the kernel does not say.
func anonymous() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}
