package capture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
)

// Image is what a capture yields: two small files whole, and the layout of pages.img.
type Image struct {
	State     []byte   // checkpoint.img
	PagesMeta []byte   // pages_meta.img
	Extents   []Extent // where the bytes of pages.img came from, in order
	PagesSize int64    // bytes of pages.img
}

// Extent is a run of pages.img that came from one range of one memory file.
type Extent struct {
	File  int // number of the memory file
	Range memmap.FileRange
}

// Capture takes one checkpoint's image files from a sentry.
type Capture struct {
	pages Pages

	mu      sync.Mutex
	files   map[string]finalizer
	opened  time.Time
	closed  time.Time
	sentry  *unet.Socket
	aborted bool

	done chan struct{} // closed when the sentry has hung up
}

// finalizer is a file being written.
type finalizer interface{ finalized() bool }

// New returns a capture whose pages go to pages.
func New(pages Pages) *Capture {
	return &Capture{pages: pages, files: make(map[string]finalizer), done: make(chan struct{})}
}

// Serve serves the sentry on sock, which it takes over, until the sentry hangs up. It is called
// once.
func (c *Capture) Serve(sock int) error {
	defer close(c.done)
	us, err := unet.NewSocket(sock)
	if err != nil {
		unix.Close(sock)
		return fmt.Errorf("sentry's socket: %w", err)
	}
	fs, err := stateipc.NewAsyncFileServer(server{c})
	if err != nil {
		us.Close()
		return fmt.Errorf("serve the sentry: %w", err)
	}
	c.mu.Lock()
	c.sentry = us
	if c.aborted {
		us.Shutdown()
	}
	c.mu.Unlock()
	s := urpc.NewServer()
	s.Register(fs)
	s.Handle(us) // until the sentry is done, or dead: the error is that it hung up
	fs.Stop()
	return nil
}

// Abort hangs up on the sentry: its save fails, and the sandbox runs on. It may be called at any
// time and more than once; after the sentry is done it has no effect.
func (c *Capture) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	if c.sentry != nil {
		c.sentry.Shutdown()
	}
}

// Wait waits until Serve has returned.
func (c *Capture) Wait() { <-c.done }

// Image waits until the sentry has hung up and returns what it wrote. It is an error if any file
// was not finished.
func (c *Capture) Image(ctx context.Context) (*Image, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range imageFiles {
		f := c.files[name]
		if f == nil {
			return nil, fmt.Errorf("the sandbox did not save %s: %w", name, ErrIncomplete)
		}
		if !f.finalized() {
			return nil, fmt.Errorf("the sandbox did not finish %s: %w", name, ErrIncomplete)
		}
	}
	pages := c.files[checkpointfiles.PagesFileName].(*pagesFile)
	return &Image{
		State:     c.files[checkpointfiles.StateFileName].(*smallFile).data,
		PagesMeta: c.files[checkpointfiles.PagesMetadataFileName].(*smallFile).data,
		Extents:   pages.extents,
		PagesSize: int64(pages.size),
	}, nil
}

// Span returns when the sentry opened its first file and when it finished its last: the part of
// the pause in which the sandbox was being saved.
func (c *Capture) Span() (opened, closed time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened, c.closed
}

// ErrIncomplete says that a sandbox hung up before its image was complete.
var ErrIncomplete = errors.New("image is incomplete")

// imageFiles are the files of a checkpoint without compression
// (pkg/sentry/state/checkpointfiles).
var imageFiles = []string{
	checkpointfiles.StateFileName,
	checkpointfiles.PagesMetadataFileName,
	checkpointfiles.PagesFileName,
}

// server implements stateipc.AsyncFileServerImpl.
type server struct{ c *Capture }

// Destroy implements stateipc.AsyncFileServerImpl.
func (s server) Destroy() {}

// OpenRead implements stateipc.AsyncFileServerImpl.
func (s server) OpenRead(string) (stateio.AsyncReader, error) {
	return nil, errors.New("this is a checkpoint: nothing can be read")
}

// OpenWrite implements stateipc.AsyncFileServerImpl.
func (s server) OpenWrite(path string) (stateio.AsyncWriter, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files[path] != nil {
		return nil, fmt.Errorf("image file %q was opened before", path)
	}
	if c.opened.IsZero() {
		c.opened = time.Now()
	}
	switch path {
	case checkpointfiles.PagesFileName:
		f := newPagesFile(c, c.pages)
		c.files[path] = f
		return f, nil
	case checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName:
		f := newSmallFile(c, path)
		c.files[path] = f
		return f, nil
	}
	return nil, fmt.Errorf("unknown image file %q", path)
}

// finished notes that one more file is complete.
func (c *Capture) finished() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = now
}
