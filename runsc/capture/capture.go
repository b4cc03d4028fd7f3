package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sidecar"
)

// Image is the result of a capture: the small files whole, and where the bytes of pages.img are.
type Image struct {
	Small     []Small // in the order in which a restore reads them
	Runs      []Run   // of pages.img, in order
	PagesSize int64   // bytes of pages.img
	Memory    int64   // bytes of pages.img that were in memory and not in a file on disk
}

// Small is an image file that is kept whole.
type Small struct {
	Name string
	Data []byte
}

// Size returns the bytes of all image files.
func (im *Image) Size() int64 {
	n := im.PagesSize
	for _, f := range im.Small {
		n += int64(len(f.Data))
	}
	return n
}

// Capture takes one checkpoint's image files from a sentry.
type Capture struct {
	pages Pages
	chunk int64    // limit of a run of pages, in bytes
	small []string // names of the image files that are kept whole

	meanwhile *meanwhile // nil: there is no other work during the pause

	bound func(n int64) error // or nil: see Options.Take

	mu      sync.Mutex
	files   map[string]file
	opened  time.Time
	closed  time.Time
	conn    *sidecar.Conn // nil: Serve has not begun
	aborted bool
	err     error // the first reason why something was refused

	done chan struct{} // closed when Serve has ended
}

// Options say what is captured.
type Options struct {
	Scope snapshot.Scope // of the image
	Pages Pages          // takes the image's pages
	Chunk int64          // limit of a run of pages, in bytes; a multiple of the size of a page
	// Take, if set, is called before the image files that are kept whole take n more bytes of memory. If it fails, so does
	// the save. The calls come one at a time.
	Take func(n int64) error
	// Meanwhile, if set, is called once the sandbox is paused and has flushed to its files what it held back. The sandbox
	// stays paused until Meanwhile returns. If it fails, the save fails and the sandbox runs on. Its context ends when the
	// sentry hangs up.
	Meanwhile func(context.Context) error
}

// New returns a capture of an image.
func New(o Options) *Capture {
	c := &Capture{
		pages: o.Pages, chunk: o.Chunk, bound: o.Take, small: smallFiles(o.Scope), files: make(map[string]file),
		done: make(chan struct{}),
	}
	if o.Meanwhile != nil {
		c.meanwhile = newMeanwhile(o.Meanwhile)
	}
	return c
}

// take takes n more bytes of memory.
func (c *Capture) take(n int64) error {
	if c.bound == nil {
		return nil
	}
	return c.bound(n)
}

// Abort hangs up on the sidecar: the sentry's save fails, and the sandbox runs on. It may be called at any time and
// more than once. Once the sentry is done it has no effect.
func (c *Capture) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	if c.conn != nil {
		c.conn.Close()
	}
}

// Err returns the first reason why something of the save was refused or not copied, or nil. The sentry passes on only
// that its save has failed.
func (c *Capture) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Wait waits until Serve has returned.
func (c *Capture) Wait() { <-c.done }

// Image waits until the sidecar has hung up, and returns what the sentry wrote. If any file is unfinished, it
// returns an error.
func (c *Capture) Image(ctx context.Context) (*Image, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := c.MeanwhileErr(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	im := &Image{}
	for _, name := range append(slices.Clone(c.small), checkpointfiles.PagesFileName) {
		f := c.files[name]
		if f == nil || !f.finalized() {
			return nil, c.incomplete(name)
		}
		switch f := f.(type) {
		case *smallFile:
			im.Small = append(im.Small, Small{name, f.data})
		case *pagesFile:
			im.Runs, im.PagesSize, im.Memory = f.runs(), int64(f.size), int64(f.inMemory)
		}
	}
	return im, nil
}

// incomplete returns the error for an image file that is missing or unfinished. The caller holds c.mu.
func (c *Capture) incomplete(name string) error {
	if c.err != nil {
		return fmt.Errorf("%w: %s was not taken: %w", ErrIncomplete, name, c.err)
	}
	return fmt.Errorf("%w: the sandbox did not finish %s", ErrIncomplete, name)
}

// Span returns when the sentry opened its first file and when it finished its last one. In this part of the pause
// the sandbox was being saved.
func (c *Capture) Span() (opened, closed time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened, c.closed
}

// ErrIncomplete means that a sandbox hung up before its image was complete.
var ErrIncomplete = errors.New("image is incomplete")

// smallFiles returns the names of all image files except pages.img (pkg/sentry/state/checkpointfiles).
func smallFiles(scope snapshot.Scope) []string {
	if scope == snapshot.RootfsOnly {
		return []string{
			checkpointfiles.FSCheckpointManifestFileName,
			checkpointfiles.FSCheckpointMultiTarFileName,
			checkpointfiles.PagesMetadataFileName,
		}
	}
	return []string{checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName}
}

// finished notes that one more file is complete.
func (c *Capture) finished() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = now
}
