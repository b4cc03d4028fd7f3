package pgalloc

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/timing"
)

const page = hostarch.PageSize

// memoryPages is how many pages the saved memory of the tests has. Each begins with its number in the pages file.
const memoryPages = 40

// saved is a MemoryFile as it is saved: what describes it, and its pages.
type saved struct{ meta, pages []byte }

// inMemory returns a MemoryFile on a memory file, as the sentry's is.
func inMemory(t *testing.T) *MemoryFile {
	t.Helper()
	fd, err := unix.MemfdCreate("memory", 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewMemoryFile(os.NewFile(uintptr(fd), "memory"), MemoryFileOpts{
		DisableIMAWorkAround: true, DisableMemoryAccounting: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Destroy)
	return f
}

// save saves a MemoryFile of two parts with a hole between them.
func save(t *testing.T) (s saved) {
	t.Helper()
	f := inMemory(t)
	number := uint64(0)
	fill := func(dir Direction) {
		fr, err := f.Allocate(memoryPages/2*page, AllocOpts{Kind: usage.Anonymous, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for at := fr.Start; at < fr.End; at += page {
			b, err := f.MapInternal(memmap.FileRange{at, at + page}, hostarch.Write)
			if err != nil {
				t.Fatal(err)
			}
			word := binary.LittleEndian.AppendUint64(nil, number|1<<32) // none is a page of zeros
			if _, err := safemem.CopySeq(b, safemem.BlockSeqOf(safemem.BlockFromSafeSlice(word))); err != nil {
				t.Fatal(err)
			}
			number++
		}
	}
	fill(BottomUp)
	fill(TopDown)
	var meta, pages bytes.Buffer
	over := make(chan error, 1)
	to, err := StartAsyncPagesFileSave(stateio.NewIOWriter(&pages, 4*page, 4, 1), func(err error) { over <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SaveTo(t.Context(), &meta, &SaveOpts{PagesFile: to}); err != nil {
		t.Fatal(err)
	}
	to.MemoryFilesDone()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if pages.Len() != memoryPages*page {
		t.Fatalf("%d pages were saved", pages.Len()/page)
	}
	return saved{meta.Bytes(), pages.Bytes()}
}

// ask is a read, or a reminder, that a lanedFile was asked for.
type ask struct {
	off, n   int64 // in pages
	awaited  bool
	reminder bool
	answer   func()
}

// lanedFile is a pages file with lanes.
type lanedFile struct {
	stateio.NoRegisterClientFD
	pages   []byte
	set     []memmap.FileRange
	held    func(ask) bool // reads that the test answers
	awaited bool           // the current lane
	done    chan stateio.Completion
	poked   chan struct{}

	mu    sync.Mutex
	asked []ask
}

func (f *lanedFile) Close() error                    { return nil }
func (f *lanedFile) MaxReadBytes() uint64            { return 4 * page }
func (f *lanedFile) MaxRanges() int                  { return 4 }
func (f *lanedFile) MaxParallel() int                { return 4 }
func (f *lanedFile) MaxAwaited() int                 { return 2 }
func (f *lanedFile) WorkingSet() []memmap.FileRange  { return f.set }
func (f *lanedFile) NeedRegisterDestinationFD() bool { return false }

func (f *lanedFile) Use(awaited bool) uint64 {
	f.awaited = awaited
	return f.MaxReadBytes()
}

func (f *lanedFile) Interrupt() {
	select {
	case f.poked <- struct{}{}:
	default:
	}
}

func (f *lanedFile) AddRead(id int, off int64, _ stateio.DestinationFile, fr memmap.FileRange, mapped []byte) {
	f.add(ask{off: off / page, n: int64(fr.Length()) / page}, func() {
		n := copy(mapped, f.pages[off:])
		f.done <- stateio.Completion{ID: id, N: uint64(n)}
	})
}

func (f *lanedFile) AddReadv(id int, off int64, total uint64, _ stateio.DestinationFile, _ []memmap.FileRange,
	mapped []unix.Iovec,
) {
	f.add(ask{off: off / page, n: int64(total) / page}, func() {
		at := off
		for _, v := range mapped {
			at += int64(copy(stateio.SliceFromIovec(v), f.pages[at:]))
		}
		f.done <- stateio.Completion{ID: id, N: uint64(at - off)}
	})
}

func (f *lanedFile) AddReminder(id int, off int64) {
	f.add(ask{off: off / page, n: 1, reminder: true}, func() { f.done <- stateio.Completion{ID: id, N: page} })
}

func (f *lanedFile) add(a ask, answer func()) {
	a.awaited, a.answer = f.awaited, answer
	f.mu.Lock()
	f.asked = append(f.asked, a)
	f.mu.Unlock()
	if f.held == nil || !f.held(a) {
		answer()
	}
}

func (f *lanedFile) Wait(cs []stateio.Completion, _ int) ([]stateio.Completion, error) {
	select {
	case c := <-f.done:
		return append(cs, c), nil
	case <-f.poked:
		return cs, nil
	}
}

// asks returns what was asked for so far.
func (f *lanedFile) asks() []ask {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

// load loads a MemoryFile from a pages file. Over gets the result.
func load(t *testing.T, s saved, from *lanedFile) (f *MemoryFile, over chan error) {
	t.Helper()
	from.pages, from.done, from.poked = s.pages, make(chan stateio.Completion, 8), make(chan struct{}, 1)
	over = make(chan error, 1)
	timeline := timing.New("test", time.Now()).Fork("test")
	apfl, err := StartAsyncPagesFileLoad(from, func(err error) { over <- err }, timeline)
	if err != nil {
		t.Fatal(err)
	}
	f = inMemory(t)
	opts := &LoadOpts{PagesFile: apfl, Timeline: timeline}
	if err := f.LoadFrom(t.Context(), bytes.NewReader(s.meta), opts); err != nil {
		t.Fatal(err)
	}
	apfl.MemoryFilesDone()
	return f, over
}

// check compares all pages of a MemoryFile that is loaded with those that were saved.
func check(t *testing.T, f *MemoryFile, over chan error) {
	t.Helper()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	for seg := f.memAcct.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
		for at := seg.Start(); seg.ValuePtr().knownCommitted && at < seg.End(); at += page {
			b, err := f.MapInternal(memmap.FileRange{at, at + page}, hostarch.Read)
			if err != nil {
				t.Fatal(err)
			}
			if got := binary.LittleEndian.Uint64(b.Head().ToSlice()); uint32(got) >= memoryPages || got>>32 != 1 {
				t.Errorf("page at %#x: %#x", at, got)
			}
			number++
		}
	}
	if number != memoryPages {
		t.Errorf("%d pages are there", number)
	}
}

// pagesFrom returns a range of the pages file, in pages.
func pagesFrom(from, to uint64) memmap.FileRange { return memmap.FileRange{from * page, to * page} }

// TestWorkingSetFirst: the working set is read first, in its order, and everything else once.
func TestWorkingSetFirst(t *testing.T) {
	s := save(t)
	from := &lanedFile{set: []memmap.FileRange{
		pagesFrom(30, 32), {17*page + 1, 19*page - 1}, pagesFrom(31, 33), pagesFrom(5, 6),
	}}
	f, over := load(t, s, from)
	check(t, f, over)
	var read []int64
	for _, a := range from.asks() {
		if a.awaited {
			t.Errorf("%+v: nobody waits", a)
		}
		for i := range a.n {
			read = append(read, a.off+i)
		}
	}
	if want := []int64{30, 31, 17, 18, 32, 5}; !slices.Equal(read[:len(want)], want) {
		t.Errorf("pages were read in the order %v, want %v first", read, want)
	}
	slices.Sort(read)
	for i := range int64(memoryPages) {
		if read[i] != i {
			t.Fatalf("pages %v were read", read)
		}
	}
}

// TestHostileWorkingSet: whatever the working set is, all pages are loaded, each once.
func TestHostileWorkingSet(t *testing.T) {
	s := save(t)
	for name, set := range map[string][]memmap.FileRange{
		"beyond the end":    {pagesFrom(memoryPages, memoryPages+9), pagesFrom(1<<40, 1<<41)},
		"all and more":      {{0, math.MaxUint64}},
		"the end of all":    {{math.MaxUint64 - 1, math.MaxUint64}},
		"one byte":          {{7*page + 5, 7*page + 6}},
		"the same, often":   slices.Repeat([]memmap.FileRange{pagesFrom(0, memoryPages)}, 1000),
		"everything, often": slices.Repeat([]memmap.FileRange{{0, math.MaxUint64}}, maxFound),
		"backwards":         {pagesFrom(30, 40), pagesFrom(20, 30), pagesFrom(10, 20), pagesFrom(0, 10)},
	} {
		t.Run(name, func(t *testing.T) {
			from := &lanedFile{set: set}
			f, over := load(t, s, from)
			check(t, f, over)
			var n int64
			for _, a := range from.asks() {
				n += a.n
			}
			if n != memoryPages {
				t.Errorf("%d pages were read, want %d", n, memoryPages)
			}
		})
	}
}

// TestReminder: if somebody waits for a page that is being read ahead of need, the file is told, once. What the
// reminder reads is not loaded.
func TestReminder(t *testing.T) {
	s := save(t)
	reminded, begun := make(chan ask, 8), make(chan struct{})
	from := &lanedFile{}
	from.held = func(a ask) bool {
		if a.reminder {
			reminded <- a
		}
		if a.awaited || a.off > 0 {
			return false
		}
		close(begun)
		return true
	}
	f, over := load(t, s, from)
	<-begun
	first := f.memAcct.FirstSegment().Start()
	waits := make(chan error, 2)
	for range cap(waits) {
		go func() {
			_, err := f.MapInternal(memmap.FileRange{first + page, first + 2*page}, hostarch.Read)
			waits <- err
		}()
	}
	a := <-reminded
	if a.off > 1 || !a.awaited {
		t.Errorf("reminder %+v of page 1", a)
	}
	from.asks()[0].answer()
	for range cap(waits) {
		if err := <-waits; err != nil {
			t.Error(err)
		}
	}
	check(t, f, over)
	if len(reminded) > 0 {
		t.Errorf("one page has another reminder: %+v", <-reminded)
	}
}
