package restore

import (
	"context"
	"sync"
	"time"

	"diapause.dev/agent/snapshots"
	"diapause.dev/agent/workingset"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
)

// A sandbox that is restored loads three things: what it waits for, what it will soon wait for, and all the rest, which
// it loads ahead of need. They share processors, or the wire to a store. The rest has to wait for the others. But a
// sandbox of unmodified runsc asks for what it waits for only once some read of its has ended. So over a wire the rest
// goes on slowly, in small reads. One of the repaired build asks at once, and is told what it will soon wait for, as
// far as that is known: it loads that before the rest.
const (
	// farRead is the size of a sandbox's largest read, in bytes, if the snapshot is not on this node: as small as a chunk,
	// so that what has been fetched lasts for many of them. On the node, small reads cost more than they gain.
	farRead = 64 << 10
	// startPause is between two reads ahead of need over a wire, until the sandbox waits for something for the first
	// time, or for startTime: no task runs yet. What is there already is kept for later.
	startPause = 10 * time.Millisecond
	startTime  = 500 * time.Millisecond
	// needPause is between two reads ahead of need over a wire, while the sandbox waits for something, or while what it
	// will soon wait for is fetched.
	needPause = 5 * time.Millisecond
	// herePause is the same if the second read is of what has been fetched already: it costs no wire, and the sandbox
	// asks for what it waits for once the read has ended.
	herePause = time.Millisecond
	// promptPause is between two reads ahead of need from this node, while a sandbox waits that asks for what it waits for
	// at once, and that has been told what it will wait for. The others load all as fast as they can: real programs under
	// load wait for much of it.
	promptPause = 2 * time.Millisecond
	// needTime is how long there is need after the sandbox has last waited for something.
	needTime = 100 * time.Millisecond
	// nodePause is between two reads ahead of need from this node, while another sandbox has need, or while one is being
	// created, for which createTime is allowed. They need the processors more.
	nodePause  = 20 * time.Millisecond
	createTime = 500 * time.Millisecond
	// mostRest is how long one read ahead of need from this node is followed by none, at most, while what else runs on
	// the node needs the processors. A task that goes through memory in order may wait for such reads, too: they lie
	// where the sandbox would load ahead of need.
	mostRest = 10 * time.Millisecond
)

// How far a sandbox that reads a file in order is read ahead for, and from which length of its stream on, in bytes.
const (
	aheadBytes  = 8 << 20
	aheadStream = 1 << 20
)

// need is what is known of a sandbox's need.
type need struct {
	mu      sync.Mutex
	began   time.Time // when the sandbox first asked for memory
	awaited time.Time // when it last asked for what it waits for
	streams [2]stream // of what it waits for, and of the rest
}

// stream is a row of reads, each of which begins where the one before has ended.
type stream struct {
	from, to int64 // what was read
	ahead    int64 // where reading ahead has come to
	missed   bool  // some of it had to be fetched when it was asked for
}

// hurry notes that some sandbox of this node needs the processors for so long.
func (rs *Restores) hurry(d time.Duration) {
	until := time.Now().Add(d).UnixNano()
	for {
		now := rs.hurried.Load()
		if now >= until || rs.hurried.CompareAndSwap(now, until) {
			return
		}
	}
}

// inHurry reports whether a time that was passed to hurry is not over.
func (rs *Restores) inHurry() bool { return time.Now().UnixNano() < rs.hurried.Load() }

// Asked implements gofer.Source. It records what the sandbox waits for, and reads ahead for it.
func (s *source) Asked(file string, off, n int64, why gofer.Need) {
	if isVolume(file) || file == runsc.WorkingSetFile || s.holds() { // a volume is read from its beginning to its end
		return
	}
	awaited := why != gofer.Ahead
	s.rs.mu.Lock()
	defer s.rs.mu.Unlock() // until nothing uses the reader
	r, reader := s.restore, s.restore.reader
	if reader == nil {
		return
	}
	if awaited {
		s.rs.hurry(needTime)
	}
	r.noteAsked(reader, file, off, n, why)
	if file != runsc.PagesFile {
		return
	}
	there := reader.OnNode || reader.Has(file, off, n)
	if from, n := r.need.note(off, n, why, there); n > 0 {
		s.rs.readAhead(reader, file, from, n)
	}
}

// maxLate bounds how often it is recorded that somebody waited for what was asked for ahead of need. What a task that
// goes through memory in order waits for is no working set.
const maxLate = 16

// noteAsked records a read for the working set. A sandbox that knows the working set does not wait for what it has
// loaded of that: it stays. The caller holds rs.mu.
func (r *restore) noteAsked(s *snapshots.Reader, file string, off, n int64, why gofer.Need) {
	guided := r.guided.Load()
	switch why {
	case gofer.Ahead:
		if !guided || !s.Expected().Has(off, n) {
			return
		}
	case gofer.Late:
		if r.late++; r.late > maxLate {
			return
		}
	}
	most := workingset.Max
	if guided {
		most = max(maxGuided, s.Expected().Chunks())
	}
	r.asked.Add(s.Reader, file, off, n, most)
}

// note notes a read of the memory. It returns what to read ahead, if anything.
func (d *need) note(off, n int64, why gofer.Need, there bool) (from, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.began.IsZero() {
		d.began = time.Now()
	}
	s := &d.streams[1]
	if why != gofer.Ahead {
		d.awaited = time.Now()
		s = &d.streams[0]
	} else if d.thereIs() {
		return 0, 0
	}
	if off != s.to {
		if why == gofer.Late { // it may be a page of what was noted before
			return 0, 0
		}
		*s = stream{from: off, to: off, ahead: off}
	}
	s.to += n
	s.missed = s.missed || !there
	s.ahead = max(s.ahead, s.to)
	if !s.missed || s.to-s.from < aheadStream || s.ahead-s.to > aheadBytes/2 {
		return 0, 0
	}
	from, s.ahead = s.ahead, s.to+aheadBytes
	return from, s.ahead - from
}

// thereIs reports whether the sandbox waits for something, or has lately. The caller holds d.mu.
func (d *need) thereIs() bool { return time.Since(d.awaited) < needTime }

// starts reports whether the sandbox has only begun to load, and has not waited for anything. The caller holds d.mu.
func (d *need) starts() bool { return d.awaited.IsZero() && time.Since(d.began) < startTime }

// readAhead fetches a range of a file as far as there is one. The caller holds rs.mu.
func (rs *Restores) readAhead(reader *snapshots.Reader, file string, from, n int64) {
	f, _ := reader.Manifest.File(file)
	if f == nil || from >= f.Size {
		return
	}
	rs.Readers.Retain(reader)
	rs.Life.Go(func() {
		defer rs.Readers.Release(reader)
		ctx, cancel := context.WithTimeout(rs.Life.Context(), prefetchTime)
		defer cancel()
		if err := reader.Prefetch(ctx, file, from, min(n, f.Size-from)); err != nil {
			rs.log.Debug("not read ahead", "snapshot", reader.Manifest.Meta.Key.String(), "error", err)
		}
	})
}

// Rest implements gofer.Source.
func (s *source) Rest(took time.Duration) time.Duration { return s.rs.Pace.Rest(took, mostRest) }

// Pace implements gofer.Source.
func (s *source) Pace(file string, off, n int64, prompt bool) gofer.Pace {
	if s.holds() {
		return gofer.Pace{Held: s.held}
	}
	s.rs.mu.Lock()
	reader := s.restore.reader
	s.rs.mu.Unlock()
	if reader == nil {
		return gofer.Pace{}
	}
	d := &s.restore.need
	d.mu.Lock()
	needed, starts := d.thereIs(), d.starts()
	d.mu.Unlock()
	expected := prompt && reader.Expected().Has(off, n)
	there := (expected || !reader.OnNode) && reader.Has(file, off, n)
	switch {
	case expected && (there || reader.OnNode || reader.Fetching()):
		return expectedPace(there || needed && reader.OnNode, reader.OnNode)
	case reader.OnNode:
		return s.nodePace(needed, prompt && reader.Expected().Chunks() > 0)
	case starts:
		return gofer.Pace{Pause: startPause}
	case !needed && !reader.Fetching():
		return gofer.Pace{}
	case there:
		return gofer.Pace{Pause: herePause}
	}
	return gofer.Pace{Pause: needPause}
}

// expectedPace is Pace for what the sandbox will wait for unless it is loaded before. It is in memory, or on the node,
// or on its way there. Now means that it has to wait neither for that nor for other pods.
func expectedPace(now, onNode bool) gofer.Pace {
	switch {
	case now:
		return gofer.Pace{Turns: true}
	case onNode:
		return gofer.Pace{Turns: true, GivesWay: true}
	}
	return gofer.Pace{Pause: herePause}
}

// nodePace is Pace for a snapshot on the node. A sandbox that is patient asks at once for what it waits for, and waits
// for little of what it asks for ahead of need.
func (s *source) nodePace(needed, patient bool) gofer.Pace {
	switch {
	case s.restore.urgent.Load() || needed && !patient:
		return gofer.Pace{Turns: true}
	case needed:
		return gofer.Pace{Pause: promptPause, Turns: true}
	case s.rs.inHurry():
		return gofer.Pace{Pause: nodePause, Turns: true, GivesWay: true}
	}
	return gofer.Pace{Turns: true, GivesWay: true}
}
