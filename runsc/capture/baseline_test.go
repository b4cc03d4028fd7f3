package capture

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// chunkStore keeps whole chunks. The number of a chunk is its place.
type chunkStore struct {
	mu  sync.Mutex
	all [][]byte
}

func (s *chunkStore) store(raw []byte, _ int) (place int64, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, bytes.Clone(raw))
	return int64(len(s.all) - 1), true, nil
}

func nothing([]byte, int) (int64, bool, error) { return 0, false, nil }

// based returns a mapped memory file and a baseline of it, which is empty.
func based(t *testing.T, fd int, chunk int64) (*os.File, *Mapping, *Baseline) {
	t.Helper()
	f := opened(t, fd)
	m, err := Map(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBaseline(m, chunk)
	if err != nil {
		t.Fatal(err)
	}
	return f, m, b
}

func (b *Baseline) mustRound(t *testing.T, f *os.File, store Store) (left int64) {
	t.Helper()
	left, err := b.Round(t.Context(), f, nil, store)
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func writePage(t *testing.T, fd, page int, b byte) {
	t.Helper()
	if _, err := unix.Pwrite(fd, bytes.Repeat([]byte{b}, pageSize), int64(page)*pageSize); err != nil {
		t.Fatal(err)
	}
}

// wantRuns checks that the runs of a batch are the bytes of their ranges as they are now. It returns how many bytes
// were copied for them.
func wantRuns(t *testing.T, a *Arena, fd int, b *Batch, s *chunkStore) (copied int64) {
	t.Helper()
	rest := b.Ranges
	for i, r := range b.Runs {
		var run []memmap.FileRange
		run, rest = split(rest, r.Len)
		var want []byte
		for _, piece := range run {
			page := make([]byte, piece.Length())
			if err := readFull(fd, page, int64(piece.Start)); err != nil {
				t.Fatal(err)
			}
			want = append(want, page...)
		}
		got, _, err := a.Copied(r)
		copied += int64(len(got))
		if place, whole, ok := a.Stored(r); whole {
			got = s.all[place]
		} else if ok {
			got, err = a.Patch(nil, s.all[place], r)
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("run %d, %+v, has other bytes: %v", i, r, err)
		}
	}
	return copied
}

func pagesIn(start, end uint64) memmap.FileRange {
	return memmap.FileRange{Start: start * pageSize, End: end * pageSize}
}

// TestReuse: in the pause, pages that have changed or have come since a round are copied, and no others, whatever else
// is in their chunks, and also if pages have gone.
func TestReuse(t *testing.T) {
	fd := memfd(t, 64, 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 16, 17, 20, 21, 22, 23, 40)
	f, m, base := based(t, fd, 4*pageSize)
	s := &chunkStore{}
	if left := base.mustRound(t, f, s.store); left != 0 || len(s.all) != 7 {
		t.Fatalf("%d bytes are left, %d chunks are stored", left, len(s.all))
	}
	for page, to := range map[int]byte{10: 200, 13: 201, 24: 202, 40: 203} { // 13 and 24 have come
		writePage(t, fd, page, to)
	}
	a, err := NewArena(ArenaOptions{Limit: 1 << 20, Dir: t.TempDir(), Mapping: m, Baseline: base})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Register(0, fd, 64*pageSize); err != nil {
		t.Fatal(err)
	}
	b := batchOf(4*pageSize, 0, pagesIn(0, 5), pagesIn(6, 14), pagesIn(16, 18), pagesIn(20, 21), pagesIn(22, 23),
		pagesIn(24, 25), pagesIn(40, 41))
	if err := a.Capture(b); err != nil {
		t.Fatal(err)
	}
	if n := wantRuns(t, a, fd, b, s); n != 4*pageSize {
		t.Errorf("%d bytes were copied", n)
	}
}

// TestReuseRandom: pages change, come and go at random between rounds, of which some store nothing. The capture has
// each page as it is in the pause, whether what is copied fits into memory or not.
func TestReuseRandom(t *testing.T) {
	const pages = 256
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		fd := memfd(t, pages)
		change := func() {
			for range random.IntN(pages) {
				writePage(t, fd, random.IntN(pages), byte(1+random.IntN(255)))
			}
		}
		change()
		f, m, base := based(t, fd, 16*pageSize)
		s := &chunkStore{}
		for range random.IntN(4) {
			base.mustRound(t, f, []Store{s.store, nothing}[random.IntN(2)])
			change()
		}
		a, err := NewArena(ArenaOptions{
			Limit: 64 * pageSize, Dir: t.TempDir(), Encrypt: random.IntN(2) == 0, Mapping: m, Baseline: base,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Register(0, fd, pages*pageSize); err != nil {
			t.Fatal(err)
		}
		var ranges []memmap.FileRange
		for at := uint64(0); at < pages; {
			end := min(at+uint64(1+random.IntN(40)), pages)
			ranges = append(ranges, pagesIn(at, end))
			at = end + uint64(random.IntN(5))
		}
		b := batchOf(16*pageSize, 0, ranges...)
		if err := a.Capture(b); err != nil {
			t.Fatal(err)
		}
		wantRuns(t, a, fd, b, s)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRound: a round shows what is allocated and nothing else, allocates nothing, and says what has changed.
func TestRound(t *testing.T) {
	fd := memfd(t, 4096, 5, 6, 7, 100, 102, 103, 4000)
	before := blocks(t, fd)
	f, m, b := based(t, fd, 65536)
	defer m.Close()
	s := &chunkStore{}
	left := b.mustRound(t, f, s.store)
	if n := len(bytes.Join(s.all, nil)); n != 7*pageSize || left != 0 || blocks(t, fd) != before {
		t.Errorf("%d bytes are stored, %d are left; %d blocks, were %d", n, left, blocks(t, fd), before)
	}
	if left := b.mustRound(t, f, nothing); left != 0 {
		t.Errorf("%d bytes have changed, though nobody has written", left)
	}
	writePage(t, fd, 102, 77)
	writePage(t, fd, 8, 78)
	if left := b.mustRound(t, f, nothing); left != 2*pageSize {
		t.Errorf("%d bytes have changed", left)
	}
	cause := errors.New("enough")
	fails := func([]byte, int) (int64, bool, error) { return 0, false, cause }
	if _, err := b.Round(t.Context(), f, nil, fails); !errors.Is(err, cause) {
		t.Errorf("an error of the function: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := b.Round(ctx, f, nil, s.store); !errors.Is(err, cause) {
		t.Errorf("after its context: %v", err)
	}
}

// TestPace: a round waits after each piece of work, and ends with the error of what it waits for.
func TestPace(t *testing.T) {
	fd := memfd(t, 2048, 0, 300, 700, 1100, 1500) // in windows of their own
	f, m, b := based(t, fd, 65536)
	defer m.Close()
	s := &chunkStore{}
	var waited atomic.Int64
	pace := func(_ context.Context, took time.Duration) error {
		if took < 0 {
			t.Errorf("a piece of work took %v", took)
		}
		waited.Add(1)
		return nil
	}
	if left, err := b.Round(t.Context(), f, pace, s.store); err != nil || left != 0 || waited.Load() == 0 {
		t.Errorf("%d bytes are left, it waited %d times: %v", left, waited.Load(), err)
	}
	cause := errors.New("enough")
	if _, err := b.Round(t.Context(), f, func(context.Context, time.Duration) error { return cause },
		s.store); !errors.Is(err, cause) {
		t.Errorf("an error of the pace: %v", err)
	}
}

// TestHostileOrder: a sandbox that saves the pages of a chunk in a wrong order, or more than once, gets just that.
func TestHostileOrder(t *testing.T) {
	fd := memfd(t, 16, 0, 1, 2, 3, 4, 5)
	f, m, base := based(t, fd, 16*pageSize)
	s := &chunkStore{}
	base.mustRound(t, f, s.store)
	a, err := NewArena(ArenaOptions{Limit: 1 << 20, Dir: t.TempDir(), Mapping: m, Baseline: base})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Register(0, fd, 16*pageSize); err != nil {
		t.Fatal(err)
	}
	for _, ranges := range [][]memmap.FileRange{
		{pagesIn(3, 5), pagesIn(0, 2)}, {pagesIn(1, 3), pagesIn(2, 4)}, {pagesIn(2, 3), pagesIn(2, 3), pagesIn(2, 3)},
	} {
		b := batchOf(16*pageSize, 0, ranges...)
		if err := a.Capture(b); err != nil {
			t.Fatal(err)
		}
		wantRuns(t, a, fd, b, s)
	}
}

// TestHostileTruncatedWhileCompared: a sandbox that truncates its memory has its save fail, and the agent gets no
// SIGBUS.
func TestHostileTruncatedWhileCompared(t *testing.T) {
	fd := memfd(t, 4, 0, 1, 2, 3)
	f, m, base := based(t, fd, 65536)
	s := &chunkStore{}
	base.mustRound(t, f, s.store)
	a, err := NewArena(ArenaOptions{Limit: 1 << 20, Dir: t.TempDir(), Mapping: m, Baseline: base})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := errors.Join(a.Register(0, fd, 4*pageSize), unix.Ftruncate(fd, pageSize)); err != nil {
		t.Fatal(err)
	}
	if err := a.Capture(batchOf(65536, 0, pagesIn(0, 4))); err == nil {
		t.Error("captured what is not there")
	}
	base.mustRound(t, f, s.store) // of what is left
}
