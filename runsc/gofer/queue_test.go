package gofer

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestQueue: what somebody waits for comes first. What nobody waits for comes with pauses, and never stays for good.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pause atomic.Int64
		q := newQueue(func() time.Duration { return time.Duration(pause.Load()) })
		put := func(id uint32, awaited bool) {
			if !q.put(&readRequest{id: uint64(id)}, awaited) {
				t.Errorf("no room for read %d", id)
			}
		}
		want := func(id uint64, after time.Duration) {
			t.Helper()
			begin := time.Now()
			if got := q.next().id; got != id || time.Since(begin) != after {
				t.Errorf("read %d after %v, want %d after %v", got, time.Since(begin), id, after)
			}
		}
		for i := range uint32(4) {
			put(i, false)
		}
		want(0, 0)
		pause.Store(int64(time.Second))
		put(10, true)
		put(11, true)
		want(10, 0)
		want(11, 0)
		want(1, time.Second)
		time.AfterFunc(time.Second/2, func() { put(12, true) })
		want(12, time.Second/2)
		want(2, time.Second/2)
		pause.Store(0)
		want(3, 0)
		time.AfterFunc(time.Minute, q.close)
		if r := q.next(); r != nil {
			t.Errorf("read %d of a closed queue", r.id)
		}
	})
}

// TestHostileQueue: a sandbox that asks for more than it may is refused.
func TestHostileQueue(t *testing.T) {
	q := newQueue(func() time.Duration { return 0 })
	for i := range maxQueued {
		if !q.put(&readRequest{}, i%2 == 0) {
			t.Fatalf("no room for read %d", i)
		}
	}
	if q.put(&readRequest{}, true) || q.put(&readRequest{}, false) {
		t.Error("there is room for more")
	}
}
