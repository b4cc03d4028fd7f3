package capture

import "iter"

// Run is a run of bytes of pages.img.
type Run struct{ Off, Len int64 }

// Chunks cuts pages.img where its pages cross a multiple of size bytes in their memory file. So a page stays in
// the same chunk from one checkpoint to the next, even if its place in pages.img changes. No run is longer than
// size.
func (im *Image) Chunks(size int64) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		c := cutter{size: uint64(size)}
		for _, e := range im.Extents {
			for r := e.Range; r.Length() > 0; {
				n := min(r.Length(), c.size-r.Start%c.size)
				if !c.add(e.File, r.Start/c.size, int64(n)) && !yield(c.cut(e.File, r.Start/c.size, int64(n))) {
					return
				}
				r.Start += n
			}
		}
		if c.run.Len > 0 {
			yield(c.run)
		}
	}
}

// cutter holds the run that is still growing, and the window of the memory file that it lies in.
type cutter struct {
	size   uint64
	run    Run
	file   int
	window uint64
}

// add grows the run by n bytes of a window, or returns false if they belong to another run.
func (c *cutter) add(file int, window uint64, n int64) bool {
	if c.run.Len > 0 && (file != c.file || window != c.window || c.run.Len+n > int64(c.size)) {
		return false
	}
	c.file, c.window = file, window
	c.run.Len += n
	return true
}

// cut returns the run so far and begins the next one with n bytes of a window.
func (c *cutter) cut(file int, window uint64, n int64) Run {
	done := c.run
	c.run = Run{Off: done.Off + done.Len, Len: n}
	c.file, c.window = file, window
	return done
}
