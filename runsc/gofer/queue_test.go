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
		q := newQueue(func(*readRequest) Pace { return Pace{Pause: time.Duration(pause.Load())} }, noRest, newTurns())
		put := func(id uint32, awaited bool) {
			if !q.put(&readRequest{id: uint64(id)}, awaited) {
				t.Errorf("no room for read %d", id)
			}
		}
		want := func(id uint64, after time.Duration) {
			t.Helper()
			wantNext(t, q, id, after)()
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
		if r, _ := q.next(); r != nil {
			t.Errorf("read %d of a closed queue", r.id)
		}
	})
}

// TestHasten: once somebody waits for what was asked for ahead of need, it waits for no pause.
func TestHasten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(func(*readRequest) Pace { return Pace{Pause: time.Minute} }, noRest, newTurns())
		for i := range int64(4) {
			q.put(&readRequest{id: uint64(i), file: imageFile{name: "pages"}, off: i * 100, total: 100}, false)
		}
		wantNext(t, q, 0, 0)()
		time.AfterFunc(time.Second, func() {
			if late := q.hasten("other", 200, 100); len(late) > 0 {
				t.Errorf("%d reads of another file", len(late))
			}
			if late := q.hasten("pages", 99, 1); len(late) > 0 {
				t.Errorf("read %d, which ends or begins there", late[0].id)
			}
			if late := q.hasten("pages", 299, 2); len(late) != 2 || late[0].id != 2 || late[1].id != 3 {
				t.Errorf("late are %v, want reads 2 and 3", late)
			}
		})
		wantNext(t, q, 2, time.Second)()
		wantNext(t, q, 3, 0)()
		wantNext(t, q, 1, 59*time.Second)()
	})
}

// wantNext takes a read, and checks which one it is and how long that took. The caller calls done.
func wantNext(t *testing.T, q *queue, id uint64, after time.Duration) (done func()) {
	t.Helper()
	begin := time.Now()
	r, done := q.next()
	if r.id != id || time.Since(begin) != after {
		t.Errorf("read %d after %v, want %d after %v", r.id, time.Since(begin), id, after)
	}
	return done
}

func noRest(time.Duration) time.Duration { return 0 }

// TestGivesWay: a read that nobody waits for is followed by none for a while, unless there is need, or haste.
func TestGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		haste := false
		pace := func(*readRequest) Pace { return Pace{GivesWay: !haste, Turns: true} }
		rest := func(took time.Duration) time.Duration { return 10 * took }
		q := newQueue(pace, rest, newTurns())
		for id := range uint64(4) {
			q.put(&readRequest{id: id}, false)
		}
		read := func(id uint64, after time.Duration) {
			t.Helper()
			done := wantNext(t, q, id, after)
			time.Sleep(time.Millisecond) // it takes so long
			done()
		}
		read(0, 0)
		read(1, 10*time.Millisecond)
		q.put(&readRequest{id: 10}, true)
		read(10, 0)
		read(2, 9*time.Millisecond)
		haste = true
		read(3, 0)
	})
}

// TestTurns: all sandboxes together have so many turns to load ahead of need. What somebody waits for needs none.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(turns, 1)
		pace := func(*readRequest) Pace { return Pace{Turns: true} }
		one, other := newQueue(pace, noRest, all), newQueue(pace, noRest, all)
		one.put(&readRequest{id: 1}, false)
		other.put(&readRequest{id: 2}, false)
		r, done := one.next()
		if r.id != 1 {
			t.Fatalf("read %d, want 1", r.id)
		}
		taken := make(chan uint64)
		go func() {
			for r, done := other.next(); r != nil; r, done = other.next() {
				taken <- r.id
				done()
			}
			close(taken)
		}()
		synctest.Wait()
		select {
		case id := <-taken:
			t.Errorf("read %d without a turn", id)
		default:
		}
		other.put(&readRequest{id: 3}, true)
		if id := <-taken; id != 3 {
			t.Errorf("read %d, want the awaited one", id)
		}
		done()
		if id := <-taken; id != 2 {
			t.Errorf("read %d, want 2", id)
		}
		one.put(&readRequest{id: 4}, false)
		r, late := one.next() // it waits for a store
		other.put(&readRequest{id: 5}, false)
		begin := time.Now()
		if id := <-taken; id != 5 || time.Since(begin) != turnTime || r.id != 4 {
			t.Errorf("read %d after %v, want 5 after %v", id, time.Since(begin), turnTime)
		}
		late()
		other.close()
		if id, ok := <-taken; ok {
			t.Errorf("read %d of a closed queue", id)
		}
		if len(all) != 0 {
			t.Errorf("%d turns are not given back", len(all))
		}
	})
}

// TestHostileQueue: a sandbox that asks for more than it may is refused.
func TestHostileQueue(t *testing.T) {
	q := newQueue(func(*readRequest) Pace { return Pace{} }, noRest, newTurns())
	for i := range maxQueued {
		if !q.put(&readRequest{}, i%2 == 0) {
			t.Fatalf("no room for read %d", i)
		}
	}
	if q.put(&readRequest{}, true) || q.put(&readRequest{}, false) {
		t.Error("there is room for more")
	}
}

// TestHeld: reads ahead of need wait as long as their source holds them. Others do not.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		open := atomic.Bool{}
		q := newQueue(func(*readRequest) Pace {
			if open.Load() {
				return Pace{}
			}
			return Pace{Held: held}
		}, noRest, newTurns())
		q.put(&readRequest{id: 0}, false)
		time.AfterFunc(time.Second, func() { q.put(&readRequest{id: 1}, true) })
		wantNext(t, q, 1, time.Second)()
		time.AfterFunc(time.Hour, func() {
			open.Store(true)
			close(held)
		})
		wantNext(t, q, 0, time.Hour)()
	})
}
