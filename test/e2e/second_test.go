package e2e

import (
	"fmt"
	"testing"
)

// TestSameSecond goes through the SDK's sequences with snapshots that follow each other at once: the
// newest is listed first, a suspend right after a snapshot is resumed from, and nothing older.
func TestSameSecond(t *testing.T) {
	t.Parallel()
	w := begin(t)
	s := w.newSDK("box")
	before := w.life(w.run(w.pod("box")))
	tied, made := 0, []string(nil)
	add := func(uid string, err error) {
		w.must(err)
		if made = append([]string{uid}, made...); len(made) > 1 &&
			w.snapshot(uid).CreationTimestamp.Equal(&w.snapshot(made[1]).CreationTimestamp) {
			tied++
		}
		w.lists(s, filter{}, made...)
	}
	for i := range 3 {
		mark := fmt.Sprint("round ", i)
		w.write("box", "/tmp/mark", mark)
		for range 2 { // with nothing in between, which takes time
			uid, _, err := s.snapshot(w.ctx, "snap")
			add(uid, err)
		}
		add(s.suspend(w.ctx))
		from, err := s.resume(w.ctx)
		w.must(err)
		if from != made[0] {
			t.Errorf("resumed from %s, want %s", from, made[0])
		}
		w.restored(w.current("box"), made[0], before)
		w.reads("box", "/tmp/mark", mark)
	}
	t.Logf("%d of %d snapshots were made in the second of the one before", tied, len(made))
}
