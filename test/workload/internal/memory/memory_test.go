package memory

import (
	"bytes"
	"context"
	"testing"
	"time"
)

func filled(t *testing.T, pages int) *Memory {
	t.Helper()
	m, err := New(pages*PageSize, Content{7, Half})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestVerify damages one page in every way there is and wants just that page to be found.
func TestVerify(t *testing.T) {
	tests := []struct {
		name   string
		damage func(m *Memory)
		bad    int
	}{
		{"whole", func(*Memory) {}, 0},
		{"written again", func(m *Memory) { m.Write(3) }, 0},
		{"one bit in the random half", func(m *Memory) { m.page(3)[PageSize-1] ^= 1 }, 1},
		{"one bit in the other half", func(m *Memory) { m.page(3)[wordsAt] ^= 0x80 }, 1},
		{"one bit of the sum", func(m *Memory) { m.page(3)[sumAt+5] ^= 1 }, 1},
		{"zeros", func(m *Memory) { clear(m.page(0)) }, 1},
		{"swapped", func(m *Memory) {
			p := bytes.Clone(m.page(3))
			copy(m.page(3), m.page(4))
			copy(m.page(4), p)
		}, 2},
		{"stale", func(m *Memory) {
			p := bytes.Clone(m.page(3))
			m.Write(3)
			copy(m.page(3), p)
		}, 1},
		{"ahead", func(m *Memory) { m.Write(3); m.writes[3]-- }, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := filled(t, 16)
			tt.damage(m)
			if r := m.Verify(); r.Bad != tt.bad || r.OK != (tt.bad == 0) || r.Pages != 16 {
				t.Errorf("got %+v, want %d bad", r, tt.bad)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for _, size := range []int{0, -4096, 4095} {
		if _, err := New(size, Content{1, Half}); err == nil {
			t.Errorf("New(%d): no error", size)
		}
	}
	for _, random := range []int{-8, 7, PageSize} {
		if _, err := New(PageSize, Content{1, random}); err == nil {
			t.Errorf("%d random bytes: no error", random)
		}
	}
}

func TestDirty(t *testing.T) {
	m := filled(t, 64)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	m.Dirty(ctx, 100)
	if r := m.Verify(); !r.OK {
		t.Errorf("after writing: %+v", r)
	}
	written := 0
	for _, w := range m.writes {
		written += int(w) - 1
	}
	if written == 0 {
		t.Error("nothing was written")
	}
}

func BenchmarkVerify(b *testing.B) {
	m, err := New(16<<20, Content{1, Half})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	b.SetBytes(16 << 20)
	for b.Loop() {
		m.Verify()
	}
}
