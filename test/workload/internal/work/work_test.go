package work

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"diapause.dev/test/workload/answers"
)

// TestRun: all threads work, each on pieces of its own, and the notes say how many were done.
func TestRun(t *testing.T) {
	var m Meter
	var mu sync.Mutex
	done := make(map[int]int)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx, 3, func(i int) {
			mu.Lock()
			defer mu.Unlock()
			done[i%3]++
			if i >= 3 && done[i%3] == 1 {
				t.Errorf("piece %d is the first of its thread", i)
			}
		})
	}()
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		notes := m.Report(false).Notes
		return len(done) == 3 && len(notes) > 1 && notes[len(notes)-1].Pieces > 0
	}
	for !all() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
	notes := m.Report(true).Notes
	if !slices.IsSortedFunc(notes, func(a, b answers.Done) int { return int(a.Pieces - b.Pieces) }) {
		t.Errorf("the work went backwards: %v", notes)
	}
	if left := m.Report(false).Notes; len(left) != 0 {
		t.Errorf("%d notes after a reset", len(left))
	}
}

func TestSyscalls(t *testing.T) {
	piece, end, err := Syscalls()
	if err != nil {
		t.Fatal(err)
	}
	piece(0)
	if err := end(); err != nil {
		t.Error(err)
	}
}
