package pgalloc

import (
	"cmp"
	"slices"
	"sort"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// workingSet is what is loaded ahead of need before anything else: what earlier sandboxes have waited for.
type workingSet struct {
	parts []memmap.FileRange // of the pages file, in order; nil once they are found in MemoryFiles
	found []aplFileRange     // what is left of them to be read, in order
}

// part is a range of a MemoryFile that is not loaded, and where the pages file has it.
type part struct {
	off uint64
	aplFileRange
}

// readWorkingSet reads the working set, if there is one. The loader goroutine must call it before it reads any page.
func (apfl *AsyncPagesFileLoad) readWorkingSet() {
	if r := apfl.lanes.reader; r != nil {
		apfl.lanes.working.parts = r.WorkingSet()
	}
}

// loadWorkingSet enqueues reads of the working set. It reports whether other pages may be read ahead of need: that is
// after all of the working set, and so not before it is known where it lies. The current lane must be that of reads
// ahead of need.
func (apfl *AsyncPagesFileLoad) loadWorkingSet() bool {
	w := &apfl.lanes.working
	if len(w.parts) > 0 && !apfl.findWorkingSet() {
		return false
	}
	for ; len(w.found) > 0; w.found = w.found[1:] {
		if !apfl.enqueueAhead(&w.found[0]) {
			return false
		}
	}
	return true
}

// findWorkingSet finds where the MemoryFiles have the parts of the working set, once the first MemoryFile, which has
// the memory of applications, has said what it consists of. LoadFrom wakes the loader goroutine then.
func (apfl *AsyncPagesFileLoad) findWorkingSet() bool {
	apfl.amflsMu.Lock()
	defer apfl.amflsMu.Unlock()
	apfl.mu.Lock()
	defer apfl.mu.Unlock()
	if first := apfl.amfls.Front(); first != nil && !first.lfDone {
		return false
	}
	w := &apfl.lanes.working
	w.found, w.parts = apfl.partsLocked().find(w.parts), nil
	return true
}

// parts are in the order of the pages file.
type parts []part

// partsLocked returns all that is not loaded. The caller holds apfl.amflsMu and apfl.mu.
func (apfl *AsyncPagesFileLoad) partsLocked() (all parts) {
	for amfl := apfl.amfls.Front(); amfl != nil; amfl = amfl.Next() {
		for seg := amfl.unloaded.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
			all = append(all, part{seg.ValuePtr().off, aplFileRange{amfl, seg.Range()}})
		}
	}
	slices.SortFunc(all, func(a, b part) int { return cmp.Compare(a.off, b.off) })
	return all
}

// maxFound bounds the ranges of a working set, which a server chooses.
const maxFound = 1 << 18

// find returns where ranges of the pages file lie, in their order and to whole pages. What lies nowhere is left out.
func (ps parts) find(ranges []memmap.FileRange) (found []aplFileRange) {
	for _, r := range ranges {
		i := sort.Search(len(ps), func(i int) bool { return ps[i].off+ps[i].Length() > r.Start })
		for ; i < len(ps) && ps[i].off < r.End && len(found) < maxFound; i++ {
			p := ps[i]
			in := memmap.FileRange{p.off, p.off + p.Length()}.Intersect(r) // p has whole pages
			from := p.Start + hostarch.PageRoundDown(in.Start-p.off)
			to := p.Start + hostarch.MustPageRoundUp(in.End-p.off)
			found = append(found, aplFileRange{p.amfl, memmap.FileRange{from, to}})
		}
	}
	return found
}

// enqueueAhead enqueues reads of what has not been asked for in a range, as the main loop does for pages that nobody
// waits for. It takes off the range what it has handled, and reports whether that is all of it: the queue may be full.
func (apfl *AsyncPagesFileLoad) enqueueAhead(r *aplFileRange) bool {
	amfl := r.amfl
	amfl.f.mu.Lock()
	defer amfl.f.mu.Unlock()
	apfl.mu.Lock()
	defer apfl.mu.Unlock()
	for seg := amfl.unloaded.LowerBoundSegment(r.Start); seg.Ok() && seg.Start() < r.End; seg = seg.NextSegment() {
		if seg.ValuePtr().started {
			continue
		}
		fr := seg.Range().Intersect(r.FileRange)
		n := uint64(0)
		if apfl.canEnqueue() {
			n = apfl.enqueueRange(amfl, fr, seg.ValuePtr().off+fr.Start-seg.Start(), true /* tempRef */)
		}
		if n == 0 {
			r.Start = fr.Start
			return false
		}
		fr.End = fr.Start + n
		seg = amfl.unloaded.Isolate(seg, fr)
		seg.ValuePtr().started = true
		amfl.f.incRefLocked(fr)
	}
	return true
}
