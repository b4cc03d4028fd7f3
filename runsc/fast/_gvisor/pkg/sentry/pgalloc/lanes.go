package pgalloc

import (
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// lanedReader is an AsyncReader with a lane of its own for pages that somebody waits for. It is *stateipc.Lanes.
type lanedReader interface {
	stateio.AsyncReader
	MaxAwaited() int
	Use(awaited bool) (maxReadBytes uint64)
	Interrupt()
	AddReminder(id int, off int64)
	WorkingSet() []memmap.FileRange
}

// lanes is how much of the reader's capacity is used in which lane. In AsyncPagesFileLoad, qavail and maxReadBytes are
// those of the current lane.
type lanes struct {
	reader  lanedReader // immutable; nil: the reader has one lane for all
	awaited bool        // the current lane is that of pages that somebody waits for
	other   int         // unused capacity of the other lane
	late    []uint64    // offsets in the pages file of which remind is to tell; AsyncPagesFileLoad.mu protects it
	working workingSet
}

// startLanes must be called before the loader goroutine begins.
func (apfl *AsyncPagesFileLoad) startLanes() {
	r, ok := apfl.ar.(lanedReader)
	if !ok {
		return
	}
	apfl.lanes = lanes{reader: r, other: r.MaxAwaited()}
	apfl.qavail -= r.MaxAwaited()
	apfl.maxReadBytes = hostarch.PageRoundDown(r.Use(false))
}

// takeLane makes a lane the current one, and enqueues what is under construction for the other.
func (apfl *AsyncPagesFileLoad) takeLane(awaited bool) {
	l := &apfl.lanes
	if l.reader == nil || l.awaited == awaited {
		return
	}
	if apfl.curOp != nil {
		apfl.enqueueCurOp()
	}
	l.awaited = awaited
	apfl.qavail, l.other = l.other, apfl.qavail
	apfl.maxReadBytes = hostarch.PageRoundDown(l.reader.Use(awaited))
}

// full reports whether the reader has one lane, and that is full. If it has two, one of them may well be.
func (apfl *AsyncPagesFileLoad) full() bool { return apfl.lanes.reader == nil && !apfl.canEnqueue() }

// unused returns the unused capacity of the reader.
func (apfl *AsyncPagesFileLoad) unused() int { return apfl.qavail + apfl.lanes.other }

// completed gives back the capacity that a read has used.
func (apfl *AsyncPagesFileLoad) completed(op *aplOp) {
	if l := &apfl.lanes; l.reader != nil && l.awaited == op.tempRef {
		l.other++
		return
	}
	apfl.qavail++
}

// maxLate bounds lanes.late. A page that is left out is read in its turn.
const maxLate = 64

// noteLate notes that somebody waits for pages that are being read ahead of need. The caller holds apfl.mu.
func (apfl *AsyncPagesFileLoad) noteLate(off uint64) {
	if l := &apfl.lanes; l.reader != nil && len(l.late) < maxLate {
		l.late = append(l.late, off)
	}
}

// remind tells the reader of pages that are late, as far as the current lane, that of awaited pages, has room for that.
func (apfl *AsyncPagesFileLoad) remind() {
	apfl.mu.Lock()
	late := apfl.lanes.late
	apfl.lanes.late = nil
	apfl.mu.Unlock()
	for _, off := range late {
		id, err := apfl.opsBusy.FirstZero(0)
		if err != nil || !apfl.canEnqueue() {
			return
		}
		apfl.opsBusy.Add(id)
		apfl.ops[id].amfl, apfl.ops[id].tempRef = nil, false // see isReminder
		apfl.qavail--
		apfl.lanes.reader.AddReminder(int(id), int64(off))
	}
}

// isReminder reports whether an operation has read no page of a MemoryFile.
func (op *aplOp) isReminder() bool { return op.amfl == nil }

// lookForAwaited has the loader goroutine look for pages that somebody waits for, even if none of its reads has ended.
func (apfl *AsyncPagesFileLoad) lookForAwaited() {
	if r := apfl.lanes.reader; r != nil {
		r.Interrupt()
	}
}
