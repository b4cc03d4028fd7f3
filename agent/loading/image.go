package loading

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"diapause.dev/agent/snapshots"
	"diapause.dev/agent/workingset"
	"diapause.dev/runsc"
	"diapause.dev/runsc/gofer"
)

// farRead is the size of a sandbox's largest read, in bytes, if the snapshot is not on this node: as small as a chunk,
// so that what has been fetched lasts for many of them. On the node, small reads cost more than they gain.
const farRead = 64 << 10

// Image is the image that one sandbox loads. Its methods may be called concurrently.
type Image struct {
	loader  *Loader
	request string // of the restore
	id      snapshots.ID
	store   string // location of the snapshot's store; empty: any
	reopens bool   // the sandbox may ask again after Release

	total  int64        // bytes of all image files
	read   atomic.Int64 // bytes handed to the sandbox
	urgent atomic.Bool  // somebody waits until the sandbox has everything
	guided atomic.Bool  // the sandbox loads first what it is expected to wait for
	asked  workingset.Asked
	need   need

	mu     sync.Mutex        // guards what follows
	reader *snapshots.Reader // nil: it was released
	late   int               // reads that came late
}

// Options say where the image of a restore is read from.
type Options struct {
	Request string // of the restore
	ID      snapshots.ID
	Store   string // location of the snapshot's store; empty: any
	Reopens bool   // the sandbox may ask again after its image was released
}

// Image returns the image of a snapshot that is open, and takes over one use of its reader. Without a reader it is an
// image that was released.
func (l *Loader) Image(o Options, reader *snapshots.Reader) *Image {
	i := &Image{loader: l, request: o.Request, id: o.ID, store: o.Store, reopens: o.Reopens, reader: reader}
	if reader != nil {
		i.total = reader.Manifest.Stats().RawBytes
	}
	return i
}

// Release releases what the image is read from.
func (i *Image) Release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.reader
	if s == nil {
		return
	}
	i.reader = nil
	i.loader.Readers.Release(s)
}

// current returns what the image is read from, or nil if it was released.
func (i *Image) current() *snapshots.Reader {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reader
}

// ReadBytes returns the size of the sandbox's largest read, in bytes; 0: as large as it likes.
func (i *Image) ReadBytes() uint64 {
	if s := i.current(); s != nil && !s.OnNode {
		return farRead
	}
	return 0
}

// Hasten notes that somebody waits until the sandbox has everything.
func (i *Image) Hasten() { i.urgent.Store(true) }

// Total returns how many bytes the image has; 0 if it was released before this agent began.
func (i *Image) Total() int64 { return i.total }

// Add counts bytes handed to the sandbox.
func (i *Image) Add(n int64) { i.read.Add(n) }

// Read returns how many bytes the sandbox was handed.
func (i *Image) Read() int64 { return i.read.Load() }

// Progress returns how many bytes the sandbox has been handed, and how many the image has.
func (i *Image) Progress() (done, total int64) { return min(i.read.Load(), i.total), i.total }

// Restart notes that the sandbox has gone, and that another one loads the image from its beginning.
func (i *Image) Restart() { i.read.Store(0) }

// Asked implements gofer.Source. It records what the sandbox waits for, and reads ahead for it.
func (i *Image) Asked(file string, off, n int64, why gofer.Need) {
	if isVolume(file) || file == runsc.WorkingSetFile { // a volume is read from its beginning to its end
		return
	}
	awaited := why != gofer.Ahead
	i.mu.Lock()
	defer i.mu.Unlock() // until nothing uses the reader
	reader := i.reader
	if reader == nil {
		return
	}
	if awaited {
		i.loader.hurry(standard.needTime)
	}
	i.noteAsked(reader, file, off, n, why)
	if file != runsc.PagesFile {
		return
	}
	there := reader.OnNode || reader.Has(file, off, n)
	if from, n := i.need.note(off, n, why, there); n > 0 {
		i.loader.readAhead(reader, file, from, n)
	}
}

// maxLate bounds how often it is recorded that somebody waited for what was asked for ahead of need. What a task that
// goes through memory in order waits for is no working set.
const maxLate = 16

// noteAsked records a read for the working set. A sandbox that knows the working set does not wait for what it has
// loaded of that: it stays. The caller holds i.mu.
func (i *Image) noteAsked(s *snapshots.Reader, file string, off, n int64, why gofer.Need) {
	guided := i.guided.Load()
	switch why {
	case gofer.Ahead:
		if !guided || !s.Expected().Has(off, n) {
			return
		}
	case gofer.Late:
		if i.late++; i.late > maxLate {
			return
		}
	}
	most := workingset.Max
	if guided {
		most = max(maxGuided, s.Expected().Chunks())
	}
	i.asked.Add(s.Reader, file, off, n, most)
}

// readAhead fetches a range of a file as far as there is one. The caller holds the lock of an image of the reader.
func (l *Loader) readAhead(reader *snapshots.Reader, file string, from, n int64) {
	f, _ := reader.Manifest.File(file)
	if f == nil || from >= f.Size {
		return
	}
	l.Readers.Retain(reader)
	l.Life.Go(func() {
		defer l.Readers.Release(reader)
		ctx, cancel := context.WithTimeout(l.Life.Context(), prefetchTime)
		defer cancel()
		if err := reader.Prefetch(ctx, file, from, min(n, f.Size-from)); err != nil {
			l.Logger.Debug("not read ahead", "snapshot", reader.Manifest.Meta.Key.String(), "error", err)
		}
	})
}

// Rest implements gofer.Source.
func (i *Image) Rest(took time.Duration) time.Duration {
	return i.loader.Pace.Rest(took, standard.mostRest)
}

// Pace implements gofer.Source.
func (i *Image) Pace(file string, off, n int64, prompt bool) gofer.Pace {
	reader := i.current()
	if reader == nil {
		return gofer.Pace{}
	}
	s := situation{onNode: reader.OnNode, fetching: reader.Fetching(), urgent: i.urgent.Load()}
	s.needed, s.starts = i.need.now()
	s.expected = prompt && reader.Expected().Has(off, n)
	s.there = (s.expected || !s.onNode) && reader.Has(file, off, n)
	s.patient = prompt && reader.Expected().Chunks() > 0
	s.hurry = s.onNode && i.loader.inHurry()
	return standard.pace(s)
}
