package loading

import (
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/agent/snapshots"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
)

// TestReadAhead: what a sandbox reads in order is read ahead for it, once it has had to wait for some of it. What it
// loads ahead of need is not, while it waits for something else.
func TestReadAhead(t *testing.T) {
	const mib = 1 << 20
	type read struct {
		off, n     int64
		why        gofer.Need
		there      bool
		from, size int64
	}
	tests := map[string][]read{
		"in order": {
			{0, mib / 2, gofer.Awaited, false, 0, 0},
			{mib / 2, mib / 2, gofer.Awaited, false, mib, aheadBytes},
			{mib, mib, gofer.Awaited, true, 0, 0},
			{2 * mib, 2 * mib, gofer.Awaited, true, 0, 0},
			{4 * mib, mib, gofer.Awaited, true, mib + aheadBytes, 4 * mib},
		},
		"in order, and late": {
			{0, mib / 2, gofer.Late, false, 0, 0},
			{0, 4096, gofer.Late, true, 0, 0},
			{mib / 2, mib / 2, gofer.Late, false, mib, aheadBytes},
		},
		"nothing has to be fetched": {{0, mib, gofer.Awaited, true, 0, 0}, {mib, mib, gofer.Awaited, true, 0, 0}},
		"here and there": {
			{0, mib / 2, gofer.Awaited, false, 0, 0},
			{8 * mib, mib / 2, gofer.Awaited, false, 0, 0},
		},
		"the rest has to wait": {{0, 4096, gofer.Awaited, true, 0, 0}, {4 * mib, mib, gofer.Ahead, false, 0, 0}},
		"nobody waits":         {{4 * mib, mib, gofer.Ahead, false, 5 * mib, aheadBytes}},
	}
	for name, reads := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d need
				for i, r := range reads {
					if from, size := d.note(r.off, r.n, r.why, r.there); size != r.size || size > 0 && from != r.from {
						t.Errorf("read %d: %d+%d is read ahead, want %d+%d", i, from, size, r.from, r.size)
					}
				}
			})
		})
	}
}

// TestPace: loading ahead of need has to wait while the sandbox waits for something, and a little longer.
func TestPace(t *testing.T) {
	l, s, _ := farSnapshot(t)
	src := l.Image(Options{Request: "r", ID: snapshots.ID{Key: s.Manifest.Meta.Key}}, s)
	prompt := false
	want := func(when string, want gofer.Pace) {
		t.Helper()
		if got := src.Pace(runsc.PagesFile, snapshots.ChunkSize, 4096, prompt); got != want {
			t.Errorf("%s: pace %+v, want %+v", when, got, want)
		}
	}
	want("there is no need", gofer.Pace{})
	s.Fetch(func() { want("the working set is being fetched", gofer.Pace{Pause: standard.needPause}) })
	src.Asked(runsc.PagesFile, 0, 4096, gofer.Ahead)
	want("the sandbox begins to load", gofer.Pace{Pause: standard.startPause})
	src.need.began = time.Now().Add(-2 * standard.startTime)
	want("nobody waits for what was asked for", gofer.Pace{})
	src.Asked(runsc.PagesFile, 4*snapshots.ChunkSize, 4096, gofer.Awaited)
	want("the sandbox waits", gofer.Pace{Pause: standard.needPause})
	if err := s.Prefetch(t.Context(), runsc.PagesFile, snapshots.ChunkSize, 4096); err != nil {
		t.Fatal(err)
	}
	want("the sandbox waits, and the next read needs no wire", gofer.Pace{Pause: standard.herePause})
	src.need.awaited = time.Now().Add(-2 * standard.needTime)
	want("it does not wait any longer", gofer.Pace{})
	s.OnNode = true
	want("all is on the node, and another sandbox waits",
		gofer.Pace{Pause: standard.nodePause, Turns: true, GivesWay: true})
	l.hurried.Store(0)
	want("all is on the node", gofer.Pace{Turns: true, GivesWay: true})
	src.urgent.Store(true)
	want("all is on the node, and a checkpoint waits for it", gofer.Pace{Turns: true})
	src.urgent.Store(false)
	src.Asked(runsc.PagesFile, 4*snapshots.ChunkSize, 4096, gofer.Awaited)
	src.need.awaited = time.Now().Add(time.Hour) // however slow the machine is
	want("all is on the node, and this sandbox waits", gofer.Pace{Turns: true})
	prompt = true
	want("it asks at once for what it waits for", gofer.Pace{Turns: true})
	if n := len(src.asked.Chunks()); n != 1 {
		t.Errorf("%d chunks were waited for, want 1", n)
	}
	s.Expect(s.Locate(runsc.PagesFile, snapshots.ChunkSize, 1))
	want("it will soon wait for it", gofer.Pace{Turns: true})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want("it waits, and it is not decoded", gofer.Pace{Turns: true})
	src.need.awaited = time.Time{}
	want("it will soon wait for it, and it is not decoded", gofer.Pace{Turns: true, GivesWay: true})
	src.need.awaited = time.Now().Add(time.Hour)
	s.OnNode = false
	s.Fetch(func() {
		want("it will soon wait for it, and it is being fetched", gofer.Pace{Pause: standard.herePause})
	})
	want("it will soon wait for it, and it is far away", gofer.Pace{Pause: standard.needPause})
	s.OnNode = true
	s.Expect(s.Locate(runsc.PagesFile, 5*snapshots.ChunkSize, 1))
	want("it will soon wait for something else", gofer.Pace{Pause: standard.promptPause, Turns: true})
	prompt = false
	want("it will ask for something else, not at once", gofer.Pace{Turns: true})
	src.reader = nil
	want("nothing is read any longer", gofer.Pace{})
}
