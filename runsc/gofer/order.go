package gofer

import (
	"cmp"
	"slices"
)

// The sentry loads its memory ahead of need, from the beginning of the file to its end, and skips what it has asked for
// already. In between it asks for what somebody in the sandbox waits for. Nothing in a read says which of both it is,
// but its place does: a read ahead of need begins where the one before has ended.

const (
	// mostAwaited is the size of a range, in bytes, that can be awaited. Gvisor waits for at most 32 MiB at once
	// (mapASLocked in pkg/sentry/mm). Somebody may wait for two such ranges that lie side by side.
	mostAwaited = 64 << 20
	// maxSpans bounds the ranges that are remembered. The sandbox chooses them.
	maxSpans = 1 << 10
	// maxRuns is how many runs of reads are followed at a time.
	maxRuns = 4
)

// span is a range of a file, in bytes.
type span struct{ from, to int64 }

// order tells the reads of a file that somebody waits for from those ahead of need. The zero value is ready for the
// first read.
type order struct {
	next int64         // where the next read ahead of need begins
	done []span        // what was asked for beyond next, in order
	runs [maxRuns]span // of reads that were taken for awaited and lie side by side, the latest first
}

// awaited reports whether somebody waits for a read of n bytes from off on. It must be called with each read, in the
// order in which the sandbox asks.
func (o *order) awaited(off, n int64) bool {
	if off == o.next {
		o.goOn(off + n)
		return false
	}
	if off > o.next {
		o.note(span{off, off + n})
	}
	run := o.extend(off, n)
	if run.to-run.from > mostAwaited { // the sandbox has skipped memory that it has freed
		o.goOn(run.to)
	}
	return true
}

// goOn notes that the sandbox goes on ahead of need from a place, or after what it has asked for there.
func (o *order) goOn(next int64) {
	o.next = next
	for len(o.done) > 0 && o.done[0].from <= o.next {
		o.next = max(o.next, o.done[0].to)
		o.done = o.done[1:]
	}
}

// note remembers what was asked for beyond next.
func (o *order) note(s span) {
	i, _ := slices.BinarySearchFunc(o.done, s.from, func(d span, from int64) int { return cmp.Compare(d.to, from) })
	j := i
	for j < len(o.done) && o.done[j].from <= s.to {
		s.from, s.to = min(s.from, o.done[j].from), max(s.to, o.done[j].to)
		j++
	}
	if i == j && len(o.done) >= maxSpans {
		return
	}
	o.done = slices.Replace(o.done, i, j, s)
}

// extend adds a read to the run that ends where it begins, or begins another one in the place of the oldest.
func (o *order) extend(off, n int64) span {
	i := slices.IndexFunc(o.runs[:], func(s span) bool { return s.to == off })
	if i < 0 {
		i = maxRuns - 1
		o.runs[i] = span{off, off}
	}
	run := span{o.runs[i].from, off + n}
	copy(o.runs[1:i+1], o.runs[:i])
	o.runs[0] = run
	return run
}
