package stateipc

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// Lanes reads one file of a server by two connections, so that reads that somebody waits for neither stand behind
// others nor begin only when one of these has ended. It implements stateio.AsyncReader. What is added goes to the lane
// that was chosen last by Use; each has a capacity of its own.
//
// The server tells the lanes apart by their order: the first that is opened is that of reads ahead of need.
type Lanes struct {
	all     [2]*lane // reads ahead of need, and those that are waited for
	current int
	done    chan laneDone           // has room for all reads
	poked   chan struct{}           // has room for one
	working io.ReadCloser           // the encoded working set; or nil
	waste   stateio.DestinationFile // for what reminders read
}

// lane is one connection. Its reads are added and waited for by a goroutine of its own.
type lane struct {
	rw      *asyncReadWriter
	ids     []int           // by the connection's ID: the ID of Lanes, or free
	batch   []laneRead      // added since the last Wait
	batches chan []laneRead // has room for all reads; closed by Close
}

// free is in the place of the ID of a read.
const free = -1

// laneRead is a read, with the arguments of AddReadv. A connection needs no mapping.
type laneRead struct {
	id    int
	off   int64
	total uint64
	file  stateio.DestinationFile
	frs   []memmap.FileRange
}

// laneDone is what a lane's Wait has returned.
type laneDone struct {
	lane        *lane
	completions []stateio.Completion
	err         error
}

// laneFiles are the DestinationFiles of both lanes.
type laneFiles [2]stateio.DestinationFile

// OpenReadLanes opens a file for reading by two lanes. If the server does not open it twice, it is read by one as
// usual.
func (c *AsyncFileClient) OpenReadLanes(path string) (stateio.AsyncReader, error) {
	ahead, err := c.open(path, OpenModeRead)
	if err != nil {
		return nil, err
	}
	awaited, err := c.open(path, OpenModeRead)
	if err != nil {
		log.Infof("File %q is read by one lane: %v", path, err)
		return ahead, nil
	}
	l := newLanes(ahead, awaited)
	if l.waste, err = wasteFor(awaited); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.working = c.openWorkingSet()
	return l, nil
}

func newLanes(ahead, awaited *asyncReadWriter) *Lanes {
	n := ahead.MaxParallel() + awaited.MaxParallel()
	l := &Lanes{done: make(chan laneDone, n), poked: make(chan struct{}, 1)}
	for i, rw := range []*asyncReadWriter{ahead, awaited} {
		n := rw.MaxParallel()
		l.all[i] = &lane{rw: rw, ids: slices.Repeat([]int{free}, n), batches: make(chan []laneRead, n)}
		rw.connectorWG.Add(1) // rw.Close waits for it
		go l.all[i].run(l.done)
	}
	return l
}

// wasted is what reminders fill of a file that nobody looks at.
var wasted = []memmap.FileRange{{Start: 0, End: hostarch.PageSize}}

// wasteFor registers a file that reminders of a lane fill.
func wasteFor(rw *asyncReadWriter) (stateio.DestinationFile, error) {
	fd, mapping, err := stateio.CreateMappedMemoryFD("stateipc.Lanes", hostarch.PageSize)
	if err != nil {
		return nil, err
	}
	defer unix.Close(int(fd))
	if err := unix.Munmap(mapping); err != nil {
		return nil, fmt.Errorf("unmap a file for reminders: %w", err)
	}
	return rw.RegisterDestinationFD(fd, hostarch.PageSize, nil)
}

// run adds reads and waits for them, until batches is closed or there is an error.
func (ln *lane) run(done chan<- laneDone) {
	defer ln.rw.connectorWG.Done()
	for pending := 0; ; {
		batch, open := ln.next(pending == 0)
		switch {
		case !open:
			return
		case len(batch) > 0:
			pending += ln.add(batch)
			continue
		}
		cs, err := ln.rw.Wait(nil, 1)
		pending -= len(cs)
		done <- laneDone{ln, cs, err}
		if err != nil {
			return
		}
	}
}

// next returns the next reads to add. If there are none, it waits for some, if it is to wait. Open is false once
// batches is closed.
func (ln *lane) next(wait bool) (batch []laneRead, open bool) {
	if wait {
		batch, open = <-ln.batches
		return batch, open
	}
	select {
	case batch, open = <-ln.batches:
		return batch, open
	default:
		return nil, true
	}
}

func (ln *lane) add(batch []laneRead) int {
	for i := range batch {
		r := &batch[i]
		ln.rw.AddReadv(r.id, r.off, r.total, r.file, r.frs, nil)
	}
	return len(batch)
}

// MaxAwaited returns how many of MaxParallel are of the lane of reads that somebody waits for.
func (l *Lanes) MaxAwaited() int { return l.all[1].rw.MaxParallel() }

// Use chooses the lane of the reads that are added from now on, and returns the most bytes that one of them may have.
// Only the goroutine that adds reads may call it.
func (l *Lanes) Use(awaited bool) (maxReadBytes uint64) {
	l.current = 0
	if awaited {
		l.current = 1
	}
	return l.all[l.current].rw.MaxReadBytes()
}

// Interrupt has a Wait that is under way, or the next one, return without waiting for a completion. It may be called
// concurrently with all other methods, also after Close.
func (l *Lanes) Interrupt() {
	select {
	case l.poked <- struct{}{}:
	default:
	}
}

// Close implements stateio.AsyncReader.Close.
func (l *Lanes) Close() error {
	errs := []error{l.closeWorkingSet()}
	for _, ln := range l.all {
		close(ln.batches)
		errs = append(errs, ln.rw.Close())
	}
	return errors.Join(errs...)
}

// MaxReadBytes implements stateio.AsyncReader.MaxReadBytes, for reads of either lane.
func (l *Lanes) MaxReadBytes() uint64 {
	return min(l.all[0].rw.MaxReadBytes(), l.all[1].rw.MaxReadBytes())
}

// MaxRanges implements stateio.AsyncReader.MaxRanges.
func (l *Lanes) MaxRanges() int { return min(l.all[0].rw.MaxRanges(), l.all[1].rw.MaxRanges()) }

// MaxParallel implements stateio.AsyncReader.MaxParallel.
func (l *Lanes) MaxParallel() int { return l.all[0].rw.MaxParallel() + l.all[1].rw.MaxParallel() }

// NeedRegisterDestinationFD implements stateio.AsyncReader.NeedRegisterDestinationFD.
func (l *Lanes) NeedRegisterDestinationFD() bool { return true }

// RegisterDestinationFD implements stateio.AsyncReader.RegisterDestinationFD.
func (l *Lanes) RegisterDestinationFD(fd int32, size uint64,
	settings []stateio.ClientFileRangeSetting,
) (stateio.DestinationFile, error) {
	var files laneFiles
	for i, ln := range l.all {
		f, err := ln.rw.RegisterDestinationFD(fd, size, settings)
		if err != nil {
			return nil, err
		}
		files[i] = f
	}
	return files, nil
}

// AddRead implements stateio.AsyncReader.AddRead.
func (l *Lanes) AddRead(id int, off int64, dst stateio.DestinationFile, fr memmap.FileRange, _ []byte) {
	l.AddReadv(id, off, fr.Length(), dst, []memmap.FileRange{fr}, nil)
}

// AddReadv implements stateio.AsyncReader.AddReadv. The read begins with the following Wait.
func (l *Lanes) AddReadv(id int, off int64, total uint64, dst stateio.DestinationFile, frs []memmap.FileRange,
	_ []unix.Iovec,
) {
	l.add(id, laneRead{off: off, total: total, file: dst.(laneFiles)[l.current], frs: frs})
}

// add adds a read to the current lane.
func (l *Lanes) add(id int, r laneRead) {
	ln := l.all[l.current]
	own := slices.Index(ln.ids, free)
	if own < 0 {
		panic(fmt.Sprintf("more than %d reads in lane %d", len(ln.ids), l.current))
	}
	ln.ids[own], r.id = id, own
	ln.batch = append(ln.batch, r)
}

// AddReminder tells the server that somebody waits for the page at an offset, which has been asked for in the lane of
// reads ahead of need. It is a read of that page, in the other lane, into a file of one page that nobody looks at. So a
// server that carries out a reminder as any read does no harm. The lane must be the current one.
func (l *Lanes) AddReminder(id int, off int64) {
	l.add(id, laneRead{off: off, total: hostarch.PageSize, file: l.waste, frs: wasted})
}

// Wait implements stateio.AsyncReader.Wait, except that it returns early after Interrupt.
func (l *Lanes) Wait(cs []stateio.Completion, minCompletions int) ([]stateio.Completion, error) {
	for _, ln := range l.all {
		if len(ln.batch) > 0 {
			ln.batches <- ln.batch
			ln.batch = nil
		}
	}
	for least := len(cs) + minCompletions; ; {
		d, more := l.next(len(cs) < least)
		if !more {
			return cs, nil
		}
		for _, c := range d.completions {
			own := c.ID
			if own < 0 || own >= len(d.lane.ids) || d.lane.ids[own] == free {
				return cs, fmt.Errorf("completion of a read %d that is not under way", own)
			}
			c.ID, d.lane.ids[own] = d.lane.ids[own], free
			cs = append(cs, c)
		}
		if d.err != nil {
			return cs, d.err
		}
	}
}

// next returns the next completions. If there are none, it waits for some, or for Interrupt, if it is to wait.
func (l *Lanes) next(wait bool) (d laneDone, ok bool) {
	select {
	case d := <-l.done:
		return d, true
	default:
	}
	if !wait {
		return laneDone{}, false
	}
	select {
	case d := <-l.done:
		return d, true
	case <-l.poked:
		return laneDone{}, false
	}
}
