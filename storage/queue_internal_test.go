package storage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestQueueBound: a worker gets no chunk while those that others have taken, and it, exceed the limit. One chunk is
// always allowed. After the end nothing is added.
func TestQueueBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t.Context(), target{}, 10, false)
		f := q.file("pages.img", nil)
		if q.file("pages.img", nil) != f {
			t.Error("one file has two writers")
		}
		for _, size := range []int{11, 8} {
			if err := f.Chunk(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		first, ok := q.take()
		if !ok || len(first.raw) != 11 {
			t.Fatalf("%d bytes, %v", len(first.raw), ok)
		}
		var second job
		go func() { second, _ = q.take() }()
		synctest.Wait()
		if second.raw != nil {
			t.Error("taken beyond the limit")
		}
		q.settle(&placement{job: first}, Chunk{Raw: 11, Offset: 32})
		synctest.Wait()
		if second.seq != 1 || len(second.raw) != 8 || f.chunks[0].Offset != 32 {
			t.Errorf("%+v after the first was placed at %d", second, f.chunks[0].Offset)
		}
		q.close()
		if _, ok := q.take(); ok {
			t.Error("taken after the last")
		}
		if _, err := q.number(); err == nil || f.Chunk([]byte{1}) == nil {
			t.Error("added after the end")
		}
	})
}

// TestQueueFails: once the writer has failed, nobody waits, and whoever adds a chunk gets the cause.
func TestQueueFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		q := newQueue(ctx, target{}, 10, false)
		waits := true
		go func() { _, waits = q.take() }()
		synctest.Wait()
		broken := errors.New("broken")
		cancel(broken)
		q.stir()
		synctest.Wait()
		if waits {
			t.Error("a worker still waits")
		}
		if err := q.file("a", nil).Chunk([]byte{1}); !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}
