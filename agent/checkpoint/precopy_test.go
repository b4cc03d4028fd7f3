package checkpoint

import (
	"bytes"
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/pace"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/capture"
)

// TestGivesWay: pre-copy waits for its turn for as long as it is told to, and not at all for a pod that does not run
// on.
func TestGivesWay(t *testing.T) {
	tests := map[string]struct {
		o     Options
		limit time.Duration
		want  bool
	}{
		"a pod that runs on": {limit: time.Minute, want: true},
		"no time for it":     {},
		"a stop":             {o: Options{Stop: true}, limit: time.Minute},
		"a sleep":            {o: Options{Handover: nobody{}}, limit: time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &checkpoint{cs: &Checkpoints{Config: Config{PrecopyTime: tt.limit, Pace: pace.New()}}, accepted: accepted{o: tt.o}}
			if got := c.pace() != nil; got != tt.want {
				t.Errorf("it gives way: %v, want %v", got, tt.want)
			}
		})
	}
}

// nobody takes no sandbox over.
type nobody struct{ Handover }

func TestGivesWayForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		c := &checkpoint{cs: &Checkpoints{Config: Config{PrecopyTime: limit, Pace: pace.New()}}}
		wait, began := c.pace(), time.Now()
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
		r := newRig(t)
		r.with(func(c *Config) { c.PrecopyFrom = 1 })
		c := r.underWay(&journal.Record{Key: snapshot.Key{Namespace: "ns", Name: "name"}}, Options{})
		if err := c.room.TakeMemory(t.Context(), sentryProcess().pid, c.o.Progress, c.watch.lap); err != nil {
			t.Fatal(err)
		}
		left, err := c.precopy(t.Context(), t.Context(), m, f, used)
		if err != nil || (c.baseline != nil) != want || !want && left != used {
			t.Errorf("a file of %d bytes: it is stored before the pause: %v, %d bytes are left: %v", size, c.baseline != nil,
				left, err)
		}
		c.closeWriter()
		c.room.Leave()
		r.leavesAll()
	}
}
