package capture

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// storedBytes is a Stored that keeps whole chunks. The number of a chunk is its place.
type storedBytes struct {
	mu  sync.Mutex
	all [][]byte
}

func (s *storedBytes) add(raw []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, bytes.Clone(raw))
	return nil
}

// Recognise implements Stored.
func (s *storedBytes) Recognise(parts [][]byte) (place int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw := bytes.Join(parts, nil)
	for i, b := range s.all {
		if bytes.Equal(b, raw) {
			return int64(i), true
		}
	}
	return 0, false
}

func mapped(t *testing.T, fd int) (*os.File, *Mapping) {
	t.Helper()
	f := opened(t, fd)
	m, err := Map(f)
	if err != nil {
		t.Fatal(err)
	}
	return f, m
}

// TestReuse: what Walk has shown is recognised in the pause where nothing has changed, also if a chunk has holes, and
// copied where something has, has come or has gone.
func TestReuse(t *testing.T) {
	fd := memfd(t, 64, 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 16, 17, 20, 21, 22, 23)
	f, m := mapped(t, fd)
	s := &storedBytes{}
	if err := m.Walk(t.Context(), f, 4*pageSize, s.add); err != nil {
		t.Fatal(err)
	}
	a, err := NewArena(0, 1<<20, t.TempDir(), false, m)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.Reuse(s)
	write := func(page int, b byte) {
		if _, err := unix.Pwrite(fd, bytes.Repeat([]byte{b}, pageSize), int64(page*pageSize)); err != nil {
			t.Fatal(err)
		}
	}
	write(10, 200) // changed
	write(13, 201) // has come
	if err := a.Register(0, fd, 64*pageSize); err != nil {
		t.Fatal(err)
	}
	pages := func(start, end uint64) memmap.FileRange {
		return memmap.FileRange{Start: start * pageSize, End: end * pageSize}
	}
	b := batchOf(4*pageSize, 0, pages(0, 5), pages(6, 14), pages(16, 18), pages(20, 23)) // 23 has gone
	if err := a.Capture(b); err != nil {
		t.Fatal(err)
	}
	wantStored := []bool{true, true, false, false, true, false}
	rest := b.Ranges
	for i, r := range b.Runs {
		var run []memmap.FileRange
		run, rest = split(rest, r.Len)
		want := make([]byte, 0, r.Len)
		for _, piece := range run {
			page := make([]byte, piece.Length())
			if err := readFull(fd, page, int64(piece.Start)); err != nil {
				t.Fatal(err)
			}
			want = append(want, page...)
		}
		place, stored := r.Stored()
		if stored != wantStored[i] {
			t.Errorf("run %d is stored: %v", i, stored)
			continue
		}
		var got []byte
		if stored {
			got = s.all[place]
		} else if got, _, err = a.Slice(r); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("run %d, stored %v, has other bytes", i, stored)
		}
	}
}

// TestWalk: Walk shows the runs that a capture of everything takes, and allocates nothing.
func TestWalk(t *testing.T) {
	fd := memfd(t, 4096, 5, 6, 7, 100, 102, 103, 4000)
	before := blocks(t, fd)
	f, m := mapped(t, fd)
	defer m.Close()
	var total int
	err := m.Walk(t.Context(), f, 65536, func(raw []byte) error {
		total += len(raw)
		for at := 0; at < len(raw); at += pageSize {
			if page := raw[at : at+pageSize]; page[0] == 0 || !bytes.Equal(page, bytes.Repeat(page[:1], pageSize)) {
				t.Error("a page that was not written")
			}
		}
		return nil
	})
	if err != nil || total != 7*pageSize || blocks(t, fd) != before {
		t.Errorf("%d bytes, %d blocks, were %d: %v", total, blocks(t, fd), before, err)
	}
	cause := errors.New("enough")
	if err := m.Walk(t.Context(), f, 65536, func([]byte) error { return cause }); !errors.Is(err, cause) {
		t.Errorf("an error of the function: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := m.Walk(ctx, f, 65536, func([]byte) error { return nil }); !errors.Is(err, cause) {
		t.Errorf("after its context: %v", err)
	}
}

// TestHostileTruncatedWhileRecognised: a sandbox that truncates its memory gets an error, whoever reads it, and the
// agent gets no SIGBUS.
func TestHostileTruncatedWhileRecognised(t *testing.T) {
	fd := memfd(t, 4, 0, 1, 2, 3)
	f, m := mapped(t, fd)
	s := &storedBytes{}
	if err := m.Walk(t.Context(), f, 65536, s.add); err != nil {
		t.Fatal(err)
	}
	a, err := NewArena(0, 1<<20, t.TempDir(), false, m)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.Reuse(s)
	if err := errors.Join(a.Register(0, fd, 4*pageSize), unix.Ftruncate(fd, pageSize)); err != nil {
		t.Fatal(err)
	}
	b := batchOf(65536, 0, memmap.FileRange{Start: 0, End: 4 * pageSize})
	if err := a.Capture(b); err == nil {
		t.Error("captured what is not there")
	}
	walk := func(raw []byte) error { return nil }
	if err := m.Walk(t.Context(), f, 65536, walk); err != nil {
		t.Errorf("what is left: %v", err)
	}
}
