package spool

import (
	"bytes"
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/agent/budget"
	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/pace"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/capture"
)

// TestGivesWay: pre-copy waits for its turn for as long as it is told to, and not at all for a pod that does not run
// on.
func TestGivesWay(t *testing.T) {
	tests := map[string]struct {
		p    Precopy
		want bool
	}{
		"a pod that runs on": {Precopy{Time: time.Minute}, true},
		"no time for it":     {},
		"a stop":             {Precopy{Time: time.Minute, Stop: true}, false},
		"a sleep":            {Precopy{Time: time.Minute, HandedOver: true}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.p.Pace = pace.New()
			if got := tt.p.pacing() != nil; got != tt.want {
				t.Errorf("it gives way: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestGivesWayForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		p := &Precopy{Time: limit, Pace: pace.New()}
		wait, began := p.pacing(), time.Now()
		for time.Since(began) < limit {
			before := time.Now()
			if err := wait(t.Context(), 50*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if time.Since(before) == 0 {
				time.Sleep(time.Millisecond) // all processors are free
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := wait(ctx, time.Hour); err != nil {
			t.Errorf("it still waits after %v: %v", time.Since(began), err)
		}
	})
}

// TestHostileSparseMemory: a sandbox whose memory file is very long does not have the agent take more memory than it
// may. Nothing is stored before the pause then.
func TestHostileSparseMemory(t *testing.T) {
	const used = 1 << 20
	dir := t.TempDir()
	stores, err := snapshots.Open(t.Context(), snapshots.Options{
		StateDir: dir, Store: "dir:" + dir + "/store", Opened: func() {}, Logger: journaltest.Quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stores.Close(); err != nil {
			t.Error(err)
		}
	}()
	memory := budget.NewMemory(1<<30, func(int64, int) {})
	for size, want := range map[int64]bool{1 << 24: true, 1 << 41: false} {
		fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "memory")
		defer f.Close()
		if _, err := f.WriteAt(bytes.Repeat([]byte{1}, used), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		m, err := capture.Map(f)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		share, err := memory.Take(t.Context(), "ns", 1<<20, func() {})
		if err != nil {
			t.Fatal(err)
		}
		s := New(Config{
			Stores: stores, Lineage: snapshots.NewLineage(), Room: budgeted{share},
			Key:     snapshot.Key{Namespace: "ns", Name: "name"},
			Precopy: Precopy{From: 1}, Progress: func(string, int64, int64) {}, Lap: func(string) {},
			Logger: journaltest.Quiet,
		})
		left, stored, err := s.precopy(t.Context(), t.Context(), m, f, used)
		if err != nil || (stored != nil) != want || !want && left != used {
			t.Errorf("a file of %d bytes: it is stored before the pause: %v, %d bytes are left: %v", size, stored != nil,
				left, err)
		}
		s.Abort()
		share.Return()
	}
}

// budgeted is a share of the agent's memory as a Room.
type budgeted struct{ *budget.Share }

// Arena implements Room.
func (budgeted) Arena() int64 { return 1 << 20 }

func (budgeted) MostPages() int64 { return 0 }

// WriterMemory implements Room.
func (budgeted) WriterMemory() int64 { return 64 << 20 }
