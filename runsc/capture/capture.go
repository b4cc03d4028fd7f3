package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"

	"diapause.dev/api/snapshot"
)

// Image is the result of a capture: the small files whole, and the layout of pages.img.
type Image struct {
	Small     []Small  // in the order in which a restore reads them
	Extents   []Extent // where the bytes of pages.img came from, in order
	PagesSize int64    // bytes of pages.img
	Memory    int64    // bytes of pages.img that were in memory and not in a file on disk
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

// Extent is a run of pages.img that came from one range of one memory file.
type Extent struct {
	File  int // number of the memory file
	Range memmap.FileRange
}

// Capture takes one checkpoint's image files from a sentry.
type Capture struct {
	pages Pages
	small []string // names of the image files that are kept whole

	meanwhile *meanwhile // nil: there is no other work during the pause

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

// New returns a capture of an image with the given scope. Its pages go to pages.
func New(scope snapshot.Scope, pages Pages) *Capture {
	return &Capture{pages: pages, small: smallFiles(scope), files: make(map[string]finalizer), done: make(chan struct{})}
}

// Serve serves the sentry on sock until the sentry hangs up. It owns sock. Call it once.
func (c *Capture) Serve(sock int) error {
	defer close(c.done)
	defer c.meanwhile.stop()
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
	c.meanwhile.stop()
	fs.Stop()
	return nil
}

// Abort hangs up on the sentry: its save fails, and the sandbox runs on. It may be called at any time and more
// than once. Once the sentry is done it has no effect.
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

// Image waits until the sentry has hung up, and returns what the sentry wrote. If any file is unfinished, it
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
		if f == nil {
			return nil, fmt.Errorf("the sandbox did not save %s: %w", name, ErrIncomplete)
		}
		if !f.finalized() {
			return nil, fmt.Errorf("the sandbox did not finish %s: %w", name, ErrIncomplete)
		}
		switch f := f.(type) {
		case *smallFile:
			im.Small = append(im.Small, Small{name, f.data})
		case *pagesFile:
			im.Extents, im.PagesSize, im.Memory = f.extents, int64(f.size), int64(f.memory)
		}
	}
	return im, nil
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
	switch {
	case path == checkpointfiles.PagesFileName:
		f := newPagesFile(c, c.pages)
		c.files[path] = f
		return f, nil
	case slices.Contains(c.small, path):
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
