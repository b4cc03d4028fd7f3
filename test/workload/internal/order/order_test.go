package order

import (
	"bytes"
	"context"
	"testing"
)

const testPages = 64

func region(t *testing.T, steps int) *Region {
	t.Helper()
	r, err := New(testPages * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	step(r, steps)
	return r
}

func step(r *Region, n int) {
	for range n {
		r.Step()
	}
}

// TestOneInstant restores an image taken at one instant with the position of that instant.
func TestOneInstant(t *testing.T) {
	for _, at := range []int{0, 1, testPages - 1, testPages, testPages + 1, 5*testPages + 17} {
		r := region(t, at)
		image, round, next := bytes.Clone(r.pages), r.round, r.next
		step(r, 100)
		copy(r.pages, image)
		r.round, r.next = round, next
		if v := r.Verify(); !v.OK {
			t.Errorf("after %d writes: %+v", at, v)
		}
		if step(r, 2*testPages); !r.Verify().OK {
			t.Errorf("after %d writes and going on: %+v", at, r.Verify())
		}
	}
}

// TestTorn mixes pages of two instants, which both ways of checking must find.
func TestTorn(t *testing.T) {
	const at = 3*testPages + 20
	tests := []struct {
		name  string
		apart int // writes between the two instants
		pages []int
	}{
		{"one write apart", 1, []int{20}},
		{"some pages of a later instant", 30, []int{21, 40}},
		{"one round apart", testPages, []int{5}},
		{"half the pages", 2 * testPages, []int{0, 1, 2, 3, 60, 61, 62, 63}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := region(t, at)
			image, round, next := bytes.Clone(r.pages), r.round, r.next
			step(r, tt.apart)
			for _, i := range tt.pages {
				copy(image[i*pageSize:(i+1)*pageSize], r.page(i))
			}
			copy(r.pages, image)
			r.round, r.next = round, next
			if v := r.Verify(); v.OK || v.Bad != len(tt.pages) {
				t.Errorf("at rest: %+v, want %d bad", v, len(tt.pages))
			}
			step(r, 2*testPages)
			if v := r.Verify(); v.OK || v.Found.Bad != int64(len(tt.pages)) {
				t.Errorf("going on: %+v, want %d found", v, len(tt.pages))
			}
		})
	}
}

// TestTornPosition has all pages of one instant, and the writer of another.
func TestTornPosition(t *testing.T) {
	r := region(t, 2*testPages+10)
	round, next := r.round, r.next
	step(r, 5)
	r.round, r.next = round, next
	if v := r.Verify(); v.OK || v.Bad != 5 {
		t.Errorf("%+v, want 5 bad", v)
	}
}

// TestTornPage has the two ends of a page from two rounds.
func TestTornPage(t *testing.T) {
	r := region(t, 10*testPages)
	r.page(7)[tailAt]--
	if v := r.Verify(); v.OK || v.Bad != 1 {
		t.Errorf("%+v, want 1 bad", v)
	}
}

func TestWriter(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := NewWriter(region(t, 0))
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	for w.Verify().Round < 3 {
	}
	w.Freeze(true)
	a, b := w.Verify(), w.Verify()
	if !a.OK || a.Found.Writes != b.Found.Writes {
		t.Errorf("frozen: %+v then %+v", a, b)
	}
	w.Freeze(false)
	for w.Verify().Found.Writes == a.Found.Writes {
	}
	w.Freeze(true)
	cancel()
	<-done
}
